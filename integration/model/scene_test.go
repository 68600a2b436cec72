package model_test

// Scenes are short runs of calls that leave nothing time to arrive, for what
// single steps seldom meet.

// crowd has several importers send notifications at once.
func (s *sequence) crowd() {
	for range 2 + s.below(4, "sends") {
		if im := s.anImport(); im != nil {
			s.burst(im, 1)
		}
	}
	s.drain()
}

// hurry sends and at once ends the export, the import, or a process.
func (s *sequence) hurry() {
	im := s.anImport()
	if im == nil || !im.live() {
		return
	}
	s.burst(im, 1+s.below(4, "sends"))
	switch s.below(6, "end") {
	case 0, 1, 2:
		s.unexport(im.exp)
	case 3:
		s.unimport(im)
	case 4:
		s.leave(im.p)
	case 5:
		s.leave(im.exp.owner)
	}
}

// burst sends some notifications.
func (s *sequence) burst(im *imported, n int) {
	for range n {
		if !im.link.credit() {
			return
		}
		c := sending{im: im, call: "SendNotify", n: min(im.exp.n, 4+4*s.below(8, "length")), notify: true}
		c.faults = im.faults(0, c.n, mayWrite)
		ctx, stop := s.within()
		s.dispatch(&c, func(src []byte) error { return im.im.SendNotify(ctx, src, 0) })
		stop()
	}
}

// snatch posts a redirection, sends into it and ends it at once.
func (s *sequence) snatch() {
	var list []*imported
	for _, im := range s.imports {
		if im.live() && im.exp.alone() && im.exp.rights&mayWrite != 0 {
			list = append(list, im)
		}
	}
	if len(list) == 0 {
		return
	}
	im := pick(s, list, "import")
	e := im.exp
	s.fenceOf(im)
	if e.posted != nil {
		s.endOf(e)
	}
	p := &posting{lo: 0, hi: e.n, to: e.other}
	s.say("%s: redirect all of %d", e.owner.name, e.id)
	s.expect("PostRedir", e.e.PostRedir(e.other.real[:e.n], 0), ok)
	s.posted(e, p)
	c := sending{im: im, call: "Send", n: min(e.n, eager)}
	ctx, stop := s.within()
	s.dispatch(&c, func(src []byte) error { return im.im.Send(ctx, src, 0) })
	stop()
	s.endOf(e)
}

package model_test

import "github.com/vmmc-go/vmmc"

var _ = declare("calls", "SendSignal mapped", "SendSignal stream")

var _ = declare("states", "a signal with its word before the data", "a signal with its word behind the data", "a signal whose word lies within its data", "a signal cut short")

// sendSignal sends data, and a word elsewhere: the model has two messages, in their order.
func (s *sequence) sendSignal() {
	im := s.anImport()
	if im == nil {
		return
	}
	c := sending{im: im, call: "SendSignal"}
	c.off, c.n = s.near(im.exp)
	w := sending{im: im, off: 4 * s.below(im.exp.n/4, "word"), n: 4}
	// Only a context that ends between the pieces of a long one cuts a signal short.
	if im.exp.n > 256<<10+4 && s.below(4, "long") > 0 {
		c.off, c.n, w.off = 0, im.exp.n-4, im.exp.n-4
	} else if s.rarely(10, "bad word") {
		w.off = pick(s, []int{2, -4, im.exp.n, im.exp.n - 2}, "word")
	}
	c.faults = append(im.faults(c.off, c.n, mayWrite), im.faults(w.off, 4, mayWrite)...)
	if w.off >= c.off && w.off < c.off+c.n {
		c.faults = append(c.faults, results(vmmc.ErrBadArg)...)
		reach("states", "a signal whose word lies within its data")
	}
	ctx, stop, ended := s.aContext(c.n)
	defer stop()
	c.ended = ended
	src, data := s.source(&c)
	s.say("... and a word at %d", w.off)
	word := s.fill(4)
	began := s.tick()
	err := im.im.SendSignal(ctx, src, c.off, le(word), w.off)
	scribble(src)
	r := s.expect(c.call+" "+im.way(), err, s.sendOutcomes(&c)...)
	im.noted(r)
	s.countSend(&c, r)
	switch {
	case r == ok && im.live():
		s.sent(&c, data, began)
		s.sent(&w, word, began)
		if w.off < c.off {
			reach("states", "a signal with its word before the data")
		} else {
			reach("states", "a signal with its word behind the data")
		}
	case r == ok:
		im.lost = true
	case r.unknown && im.live():
		reach("states", "a signal cut short")
		for _, m := range []*message{s.message(&c, data, began), s.message(&w, word, began)} {
			s.lay(m)
			m.doubt()
			s.push(m)
		}
		if im.mapped {
			s.acknowledged(im.link)
		}
	}
}

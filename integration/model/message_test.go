package model_test

// message is one send.
type message struct {
	im    *imported
	exp   *export
	by    *link
	order int
	off   int // in the export
	data  []byte
	began int
	ws    []*write // what it changes
	end   *write   // of the export's end of data; nil: it does not move that
	note  *note    // nil without
	raw   bool     // any bytes, no promise about the last ones
	torn  bool     // it was cut short
	taken bool     // part of it was redirected, which happens once to a message

	targets []target // where it may have been redirected

	sure bool // it arrives
	done int  // as of its writes
	told bool // its sender knows that it is done
	lost bool // it never came, for sure
}

// sent enters a message that is in its place, or will be.
func (s *sequence) sent(c *sending, data []byte, began int) *message {
	im, l := c.im, c.im.link
	m := s.message(c, data, began)
	m.sure = true
	s.lay(m)
	if c.notify && im.exp.handler {
		m.note = m.notification()
		l.notes = append(l.notes, m.note)
	} else if c.notify {
		reach("states", "a notification without a handler")
	}
	if im.mapped && !c.async && len(l.pending) > 0 {
		reach("states", "a mapped message behind others")
	}
	s.push(m)
	if !c.async && (im.mapped || c.n > eager) {
		s.acknowledged(l)
	}
	return m
}

// partly enters what a call that was cut short may have written.
func (s *sequence) partly(c *sending, data []byte, began int) {
	im, l := c.im, c.im.link
	m := s.message(c, data, began)
	mapped := im.mapped && !m.streamed()
	if mapped {
		m.data = data[:max(0, len(data)-4)] // its last word is not stored
		m.torn = true
	}
	s.lay(m)
	if !mapped && c.notify && im.exp.handler {
		m.data = data
		m.note = m.notification()
		l.notes = append(l.notes, m.note)
	}
	m.doubt()
	s.push(m)
	if mapped {
		s.acknowledged(l)
	}
}

// message makes one.
func (s *sequence) message(c *sending, data []byte, began int) *message {
	l := c.im.link
	l.order++
	return &message{im: c.im, exp: c.im.exp, by: l, order: l.order, off: c.off, data: data, began: began, raw: c.raw}
}

// lay says which bytes a message changes.
func (s *sequence) lay(m *message) {
	if m.redirectable() {
		s.divide(m)
		return
	}
	m.ws = append(m.ws, m.part(0, len(m.data), m.exp.mem, m.exp.off+m.off))
}

// part is what bytes from and to of a message change, at off of a memory.
func (m *message) part(from, to int, mem *memory, off int) *write {
	w := &write{off: off, data: m.data[from:to], by: m.by, order: m.order, began: m.began, sure: m.sure, exp: m.exp, mem: mem}
	if to == len(m.data) && to > 0 && !m.raw && !m.torn && m.sure && mem == m.exp.mem {
		last, err := m.exp.e.Word(m.off + to - 4)
		if err == nil {
			w.last = &last
		}
	}
	return w
}

// notification is what its handler is to be told.
func (m *message) notification() *note {
	n := len(m.data)
	return &note{m: m, exp: m.exp, off: m.off + n - 4, word: le(m.data[n-4:]), order: m.order, never: m.exp.discards}
}

// doubt leaves open whether a message arrives.
func (m *message) doubt() {
	m.sure = false
	for _, w := range m.ws {
		w.sure, w.last = false, nil
		w.unsettle()
	}
	if m.end != nil {
		m.end.sure = false
	}
	if m.note != nil {
		m.note.optional = true
	}
}

package model_test

import "testing"

// TestModelOfMemory checks the judge: what the model lets pass and what not.
func TestModelOfMemory(t *testing.T) {
	l1, l2 := &link{}, &link{}
	// A write of one byte; done 0: under way.
	w := func(by *link, order, began, done int, v byte) *write {
		return &write{data: []byte{v}, by: by, order: order, began: began, done: done, sure: true}
	}
	maybe := func(w *write) *write {
		w.sure = false
		return w
	}
	for _, c := range []struct {
		name   string
		log    []*write
		may    string // values that the byte may have; it was 0
		settle bool   // all writes, then
	}{
		{"nothing", nil, "\x00", false},
		{"one that is there", []*write{w(l1, 1, 1, 2, 1)}, "\x01", false},
		{"one under way", []*write{w(l1, 1, 1, 0, 1)}, "\x00\x01", false},
		{"one that may never come", []*write{maybe(w(l1, 1, 1, 2, 1))}, "\x00\x01", false},
		{"one after the other", []*write{w(l1, 1, 1, 2, 1), w(l2, 1, 3, 4, 2)}, "\x02", false},
		{"one during the other", []*write{w(l1, 1, 1, 5, 1), w(l2, 1, 3, 4, 2)}, "\x01\x02", false},
		{"in the order of a link", []*write{w(l1, 1, 1, 9, 1), w(l1, 2, 3, 9, 2)}, "\x02", false},
		{"two under way of one link", []*write{w(l1, 1, 1, 0, 1), w(l1, 2, 3, 0, 2)}, "\x00\x01\x02", false},
		{"one there, its successor under way", []*write{w(l1, 1, 1, 2, 1), w(l1, 2, 3, 0, 2)}, "\x01\x02", false},
		{"under way, then another's that is there", []*write{w(l1, 1, 1, 0, 1), w(l2, 1, 3, 4, 2)}, "\x01\x02", false},
		{"the same, both there", []*write{w(l1, 1, 1, 0, 1), w(l2, 1, 3, 4, 2)}, "\x01\x02", true},
		{"two of a link, both there at last", []*write{w(l1, 1, 1, 0, 1), w(l1, 2, 3, 0, 2)}, "\x02", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &memory{base: []byte{0}}
			entered(m, c.log...)
			if c.settle {
				for _, w := range c.log {
					if w.done == 0 {
						w.done = 10
						m.compact()
					}
				}
			}
			for v := range 4 {
				allowed := false
				for _, b := range []byte(c.may) {
					allowed = allowed || int(b) == v
				}
				if _, bad := m.wrong([]byte{byte(v)}, 0); bad == allowed {
					t.Errorf("the byte may be %d: %v, want %v", v, !bad, allowed)
				}
			}
		})
	}
}

// entered adds writes as it happens: they are under way at first.
func entered(m *memory, log ...*write) {
	for _, w := range log {
		done := w.done
		w.done = 0
		m.add(w)
		w.done = done
	}
	m.compact()
}

// TestAdoptedMemoryIsCertain: what was seen, and cannot change, is what is there.
func TestAdoptedMemoryIsCertain(t *testing.T) {
	l1, l2 := &link{}, &link{}
	m := &memory{base: make([]byte, 3)}
	entered(
		m,
		&write{off: 0, data: []byte{1, 1}, by: l1, order: 1, began: 1, done: 4, sure: true},
		&write{off: 1, data: []byte{2, 2}, by: l2, order: 1, began: 2, done: 3, sure: true},
	)
	if _, bad := m.wrong([]byte{1, 1, 2}, 0); bad {
		t.Fatal("either may come last")
	}
	m.adopt([]byte{1, 1, 2})
	if _, bad := m.wrong([]byte{1, 1, 2}, 0); bad {
		t.Error("what was seen is not allowed any more")
	}
	if at, bad := m.wrong([]byte{1, 2, 2}, 0); !bad || at != 1 {
		t.Error("what was not seen is allowed still")
	}
	m.add(&write{off: 0, data: []byte{3}, by: l1, order: 2, began: 5, sure: true})
	m.adopt([]byte{1, 1, 2})
	if _, bad := m.wrong([]byte{3, 1, 2}, 0); bad {
		t.Error("what is under way was adopted")
	}
}

// TestGetBehindWhatNeverCame: a get finds what its process has sent before, or
// what was there before that if the import that sent it was closed meanwhile.
func TestGetBehindWhatNeverCame(t *testing.T) {
	l := &link{}
	m := &memory{base: make([]byte, 4)}
	exp := &export{mem: m}
	w := &write{data: []byte{1, 1, 1, 1}, by: l, order: 1, began: 1, sure: true, exp: exp, mem: m}
	sent := &message{exp: exp, by: l, order: 1, data: w.data, ws: []*write{w}, sure: true}
	m.add(w)
	s := &sequence{now: 1}
	f := s.forkOf(&imported{exp: exp, link: l}, 0, 4)
	before := make([]byte, 4)
	if _, bad := f.then.wrong(before, f.off, f.since...); !bad {
		t.Error("a get may miss what its process has sent before it")
	}
	sent.doubt()
	for _, got := range [][]byte{before, w.data} {
		if i, bad := f.then.wrong(got, f.off, f.since...); bad {
			t.Errorf("a get may not bring %v any more where its import's end may have kept %v out (byte %d)", got, w.data, i)
		}
	}
}

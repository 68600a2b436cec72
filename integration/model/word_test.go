package model_test

import (
	"encoding/binary"

	"github.com/vmmc-go/vmmc"
)

var _ = declare(
	"calls", "Export.Word", "Word.Load", "Word.Store", "Word.Wait", "WaitUntil",
)

var _ = declare(
	"states", "a wait for a message, mapped", "a wait for a message, stream", "a wait in vain",
)

// look compares a memory with the model.
func (s *sequence) look() {
	p := pick(s, s.open(), "process")
	if len(p.memories) > 0 {
		m := pick(s, p.memories, "memory")
		s.say("%s: look at %s", p.name, m.name)
		s.observe(m)
	}
}

// word loads or stores a word of an exported buffer.
func (s *sequence) word() {
	if len(s.exports) == 0 {
		return
	}
	e := pick(s, s.exports, "export")
	off := 4 * s.below(e.n/4, "offset")
	if s.rarely(5, "bad offset") {
		off = pick(s, []int{2, -4, e.n, e.n - 1, -2}, "offset")
	}
	s.say("%s: word at %d of %d", e.owner.name, off, e.id)
	var faults []result
	if off < 0 || off > e.n-4 {
		faults = append(faults, results(vmmc.ErrBadArg)...)
	}
	if off%4 != 0 {
		faults = append(faults, results(vmmc.ErrBadAlignment)...)
	}
	w, err := e.e.Word(off)
	reach("calls", "Export.Word")
	if len(faults) > 0 {
		s.expect("Export.Word", err, faults...)
		return
	}
	s.expect("Export.Word", err, ok)
	if s.below(2, "store") == 0 {
		s.loaded(e, off, w.Load())
		return
	}
	data := s.fill(4)
	began := s.tick()
	w.Store(le(data))
	reach("calls", "Word.Store")
	e.mem.add(&write{off: e.off + off, data: data, began: began, done: s.tick(), sure: true, exp: e, mem: e.mem})
}

// loaded compares the value of a word with the model, and learns from it.
func (s *sequence) loaded(e *export, off int, v uint32) {
	reach("calls", "Word.Load")
	at := e.off + off
	for _, w := range e.mem.log {
		if w.end()-4 == at && e.mem.telling(w, at, v) {
			s.seen(w)
			break
		}
	}
	b := binary.LittleEndian.AppendUint32(nil, v)
	if i, bad := e.mem.wrong(b, at); bad {
		s.mismatch(e.mem, i, b[i-at])
		s.fail("a word has a value that it cannot have")
	}
}

// wait waits for a word: for a message that is sent first, or in vain.
func (s *sequence) wait() {
	im := s.anImport()
	if im == nil {
		return
	}
	if !im.live() || im.exp.rights&mayWrite == 0 {
		return
	}
	e := im.exp
	off := 4 * s.below(e.n/4, "offset")
	if p := e.posted; p != nil && p.lo <= off && off < p.hi {
		return // it may come elsewhere
	}
	w, err := e.e.Word(off)
	s.expect("Export.Word", err, ok)
	s.learn(e.mem)
	old := w.Load()
	s.loaded(e, off, old)
	until := s.below(2, "until") == 1
	hopeless := s.rarely(4, "in vain")
	ctx, stop := s.within()
	if hopeless {
		stop()
		ctx, stop = s.soon()
	}
	defer stop()
	var data []byte
	if !hopeless {
		c := sending{im: im, call: "Send", off: off, n: 4}
		s.dispatch(&c, func(src []byte) error {
			data = append(data, src...)
			return im.im.Send(ctx, src, off)
		})
		reach("states", "a wait for a message, "+im.way())
	}
	// Another message under way may end it, too.
	allowed := results(vmmc.ErrTimeout)
	switch {
	case !hopeless:
		allowed = []result{ok}
	case e.mem.ambiguous(e.off+off, e.off+off+4):
		allowed = append(allowed, ok)
	}
	s.say("%s: wait for the word at %d of %d, by WaitUntil %v", e.owner.name, off, e.id, until)
	var v uint32
	if until {
		err = e.owner.p.WaitUntil(ctx, func() bool { return w.Load() != old })
		v = w.Load()
		reach("calls", "WaitUntil")
	} else {
		v, err = w.Wait(ctx, old)
		reach("calls", "Word.Wait")
	}
	r := s.expect("wait", err, allowed...)
	if r != ok {
		reach("states", "a wait in vain")
		return
	}
	if v == old {
		s.fail("a wait returned the old value")
	}
	s.loaded(e, off, v)
}

var _ = declare("calls", "WaitAny")

var _ = declare("states", "a wait for any, over at once", "a wait for any, in vain", "a wait for none")

// waitAny waits for words of several exports of a process.
func (s *sequence) waitAny() {
	p := pick(s, s.open(), "process")
	var ws []vmmc.Watch
	first := -1
	certain := true // that the words which are as they were stay so
	for _, e := range s.exports {
		if e.owner != p {
			continue
		}
		off := 4 * s.below(e.n/4, "offset")
		w, err := e.e.Word(off)
		s.expect("Export.Word", err, ok)
		s.learn(e.mem)
		old := w.Load()
		if s.rarely(4, "differs") {
			old++
			if first < 0 {
				first = len(ws)
			}
		}
		certain = certain && !e.mem.ambiguous(e.off+off, e.off+off+4)
		ws = append(ws, vmmc.Watch{Word: w, Old: old})
	}
	ctx, stop := s.within()
	if first < 0 && len(ws) > 0 {
		stop()
		ctx, stop = s.soon()
	}
	defer stop()
	s.say("%s: wait for any of %d words", p.name, len(ws))
	i, err := p.p.WaitAny(ctx, ws...)
	reach("calls", "WaitAny")
	switch {
	case len(ws) == 0:
		s.expect("WaitAny", err, result{code: vmmc.ErrBadArg})
		reach("states", "a wait for none")
	case first >= 0:
		s.expect("WaitAny", err, ok)
		reach("states", "a wait for any, over at once")
		if i > first || i < first && certain {
			s.fail("WaitAny: not the first word that differs")
		}
	case !certain:
		s.expect("WaitAny", err, ok, result{code: vmmc.ErrTimeout})
	default:
		s.expect("WaitAny", err, result{code: vmmc.ErrTimeout})
		reach("states", "a wait for any, in vain")
	}
}

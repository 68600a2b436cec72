package model_test

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/vmmc-go/vmmc"
)

var _ = declare(
	"calls", "FetchAdd32 mapped", "FetchAdd32 stream", "FetchAdd64 mapped", "FetchAdd64 stream", "Swap32 mapped", "Swap32 stream",
	"Swap64 mapped", "Swap64 stream", "CompareAndSwap32 mapped", "CompareAndSwap32 stream", "CompareAndSwap64 mapped",
	"CompareAndSwap64 stream", "Export.Word64", "Word.Add, Swap, CompareAndSwap", "Word64.Add, Swap, CompareAndSwap",
)

var _ = declare(
	"states", "a compare and swap that swaps", "a compare and swap that does not", "an atomic behind messages under way",
	"an atomic on what another link may be writing", "an atomic that was given up",
)

// change is one atomic operation on a word.
func (s *sequence) change() {
	im := s.anImport()
	if im == nil {
		return
	}
	if mapped := slices.IndexFunc(s.imports, func(o *imported) bool { return o.mapped && o.live() }); mapped >= 0 && s.below(2, "mapped") == 0 {
		im = s.imports[mapped]
	}
	size := 4 << s.below(2, "wide")
	op := pick(s, []string{"Swap", "FetchAdd", "CompareAndSwap"}, "operation")
	off := 4 * s.below(im.exp.n/4, "offset")
	if s.rarely(10, "bad offset") {
		off = pick(s, []int{2, -4, im.exp.n, im.exp.n - 2}, "offset")
	} else if size == 8 && !s.rarely(10, "half way") {
		off &^= 7
	}
	faults := im.faults(off, size, mayRead|mayWrite)
	if im.exp.rights != mayRead|mayWrite {
		faults = append(faults, results(vmmc.ErrNoRights)...)
	}
	if off%size != 0 || (im.exp.off+off)%size != 0 {
		faults = append(faults, results(vmmc.ErrBadAlignment)...)
	}
	ctx, stop := s.within()
	defer stop()
	ended := op == "Swap" && s.below(2, "ended context") == 1 // what others leave would depend on what they find
	if ended {
		ctx = cancelled()
	}
	arg, expected := s.fill(size), s.guess(im, off, size)
	call := op + map[int]string{4: "32", 8: "64"}[size]
	s.say("%s: %s at %d of %d of %s (%s), ended context %v", im.p.name, call, off, im.exp.id, im.exp.owner.name, im.way(), ended)
	began := s.tick()
	old, swapped, err := atomically(ctx, im.im, op, size, off, word(arg), word(expected))
	r := s.expect(call+" "+im.way(), err, s.changeOutcomes(im, faults, ended)...)
	im.noted(r)
	c := sending{im: im, call: call, off: off, n: size, raw: true}
	switch {
	case r.unknown && im.live():
		reach("states", "an atomic that was given up")
		m := s.message(&c, arg, began)
		s.lay(m)
		s.push(m)
		return
	case r != ok:
		return
	}
	reach("calls", call+" "+im.way())
	if len(im.link.pending) > 0 {
		reach("states", "an atomic behind messages under way")
	}
	s.settle(im.link, 0)
	s.oldWord(im.exp, off, old, size)
	after := s.effect(op, size, old, arg, expected, swapped)
	if after != nil {
		m := s.message(&c, after, began)
		m.sure = true
		s.lay(m)
		s.push(m)
		s.settle(im.link, 0)
	}
}

// word is a word of 4 or 8 bytes.
func word(b []byte) uint64 {
	if len(b) == 4 {
		return uint64(le(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// atomically makes the call.
func atomically(ctx context.Context, im *vmmc.Import, op string, size, off int, a, b uint64) (old uint64, swapped bool, err error) {
	var o uint32
	switch {
	case op == "FetchAdd" && size == 4:
		o, err = im.FetchAdd32(ctx, off, uint32(a))
	case op == "FetchAdd":
		old, err = im.FetchAdd64(ctx, off, a)
	case op == "Swap" && size == 4:
		o, err = im.Swap32(ctx, off, uint32(a))
	case op == "Swap":
		old, err = im.Swap64(ctx, off, a)
	case size == 4:
		o, swapped, err = im.CompareAndSwap32(ctx, off, uint32(b), uint32(a))
	default:
		old, swapped, err = im.CompareAndSwap64(ctx, off, b, a)
	}
	return old + uint64(o), swapped, err
}

// guess is what a word may hold, or now and then something else.
func (s *sequence) guess(im *imported, off, size int) []byte {
	at := im.exp.off + off
	if s.below(2, "guess") == 1 || off < 0 || at+size > len(im.exp.mem.base) {
		return make([]byte, size)
	}
	return append([]byte{}, im.exp.mem.base[at:at+size]...)
}

func (s *sequence) changeOutcomes(im *imported, faults []result, ended bool) []result {
	out := append(append([]result{}, faults...), either(im.ends())...)
	if len(out) == 0 {
		out = append(out, ok)
	}
	if ended { // also where it is the exporter that finds a fault
		out = append(out, either(results(vmmc.ErrCanceled))...)
	}
	return out
}

// oldWord compares what an atomic has found with the model.
func (s *sequence) oldWord(e *export, off int, old uint64, size int) {
	if e.mem.ambiguous(e.off+off, e.off+off+size) {
		reach("states", "an atomic on what another link may be writing")
	}
	s.loaded(e, off, uint32(old))
	if size == 8 {
		s.loaded(e, off+4, uint32(old>>32))
	}
}

// effect is what an atomic leaves; nil: what was there.
func (s *sequence) effect(op string, size int, old uint64, arg, expected []byte, swapped bool) []byte {
	v := word(arg)
	switch op {
	case "FetchAdd":
		v += old
	case "CompareAndSwap":
		did := old == word(expected)
		if did != swapped {
			s.fail("%s: it says that it swapped %v, and that it found what was or was not expected", op, swapped)
		}
		if !did {
			reach("states", "a compare and swap that does not")
			return nil
		}
		reach("states", "a compare and swap that swaps")
	}
	return binary.LittleEndian.AppendUint64(nil, v)[:size]
}

// ownAtomics changes a word of an export by its owner.
func (s *sequence) ownAtomics() {
	if len(s.exports) == 0 {
		return
	}
	e := pick(s, s.exports, "export")
	size := 4 << s.below(2, "wide")
	off := 4 * s.below(e.n/4, "offset")
	arg := s.fill(size)
	var expected []byte
	op := pick(s, []string{"Swap", "FetchAdd", "CompareAndSwap"}, "operation")
	s.say("%s: own %s of %d bytes at %d of %d", e.owner.name, op, size, off, e.id)
	began := s.tick()
	var old uint64
	var swapped bool
	if size == 4 {
		w, err := e.e.Word(off)
		s.expect("Export.Word", err, ok)
		old = uint64(w.Load())
		expected = binary.LittleEndian.AppendUint32(nil, uint32(old))
		switch op {
		case "Swap":
			old = uint64(w.Swap(uint32(word(arg))))
		case "FetchAdd":
			old = uint64(w.Add(uint32(word(arg))) - uint32(word(arg)))
		default:
			if swapped = w.CompareAndSwap(uint32(old), uint32(word(arg))); !swapped {
				return // a message came between
			}
		}
		reach("calls", "Word.Add, Swap, CompareAndSwap")
	} else {
		w, err := e.e.Word64(off)
		reach("calls", "Export.Word64")
		var faults []result
		if off > e.n-8 {
			faults = append(faults, results(vmmc.ErrBadArg)...)
		}
		if off%8 != 0 || (e.off+off)%8 != 0 {
			faults = append(faults, results(vmmc.ErrBadAlignment)...)
		}
		if len(faults) > 0 {
			s.expect("Export.Word64", err, faults...)
			return
		}
		s.expect("Export.Word64", err, ok)
		old = w.Load()
		expected = binary.LittleEndian.AppendUint64(nil, old)
		switch op {
		case "Swap":
			old = w.Swap(word(arg))
		case "FetchAdd":
			old = w.Add(word(arg)) - word(arg)
		default:
			if swapped = w.CompareAndSwap(old, word(arg)); !swapped {
				return
			}
		}
		reach("calls", "Word64.Add, Swap, CompareAndSwap")
	}
	s.oldWord(e, off, old, size)
	after := s.effect(op, size, old, arg, expected, swapped)
	e.mem.add(&write{off: e.off + off, data: after, began: began, done: s.tick(), sure: true, exp: e, mem: e.mem})
}

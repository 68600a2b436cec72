package model_test

import (
	"bytes"
	"slices"

	"github.com/vmmc-go/vmmc"
)

var _ = declare(
	"calls", "Get mapped", "Get stream", "Import.ReadAt mapped", "Import.ReadAt stream",
)

var _ = declare(
	"states", "a get behind messages under way", "a get of what another link may be writing", "a get after the export's end", "a get over 256 KiB",
	"a read over the end",
)

// guard is around what gets bring.
const guard = 0xa5

// target is memory for n bytes with guards around, and a check of these.
func (s *sequence) target(n int) (dst []byte, intact func()) {
	b := bytes.Repeat([]byte{guard}, n+16)
	return b[8 : 8+n : 8+n], func() {
		if !bytes.Equal(b[:8], bytes.Repeat([]byte{guard}, 8)) || !bytes.Equal(b[8+n:], bytes.Repeat([]byte{guard}, 8)) {
			s.fail("a get wrote beside its destination")
		}
	}
}

func (s *sequence) get() {
	im := s.anImport()
	if im == nil {
		return
	}
	off, n := s.span(im.exp.n)
	ctx, stop, ended := s.aContext(n)
	defer stop()
	s.say("%s: Get %d bytes at %d of %d of %s (%s), ended context %v", im.p.name, n, off, im.exp.id, im.exp.owner.name, im.way(), ended)
	dst, intact := s.target(n)
	err := im.im.Get(ctx, dst, off)
	intact()
	r := s.expect("Get "+im.way(), err, s.getOutcomes(im, im.faults(off, n, mayRead), ended)...)
	if r != ok {
		return
	}
	reach("calls", "Get "+im.way())
	if n > 256<<10 {
		reach("states", "a get over 256 KiB")
	}
	s.fetched(im, dst, off, true)
}

// getOutcomes are the ways in which a get may end.
func (s *sequence) getOutcomes(im *imported, faults []result, ended bool) []result {
	out := append(slices.Clone(faults), im.ends()...)
	if im.exp.closed && len(faults) == 0 {
		reach("states", "a get after the export's end")
		im.known = im.known || !im.mapped
	}
	if len(out) == 0 {
		out = append(out, ok)
	}
	if ended && len(faults) == 0 {
		out = append(out, results(vmmc.ErrCanceled)...)
		im.known = false
	}
	return out
}

// fetched compares what a get brought with the model.
func (s *sequence) fetched(im *imported, dst []byte, off int, words bool) {
	m, at := im.exp.mem, im.exp.off+off
	if len(im.link.pending) > 0 {
		reach("states", "a get behind messages under way")
	}
	s.settle(im.link, 0)
	if m.ambiguous(at, at+len(dst)) {
		reach("states", "a get of what another link may be writing")
	}
	if words { // the last word was read first: with the last word of a message comes all of it
		last := at + len(dst) - 4
		for _, w := range slices.Clone(m.log) {
			if w.end()-4 == last && m.telling(w, last, le(dst[len(dst)-4:])) {
				s.seen(w)
			}
		}
	}
	if i, bad := m.wrong(dst, at); bad {
		s.mismatch(m, i, dst[i-at])
		s.fail("a get brought what cannot be there")
	}
}

func (s *sequence) read() {
	im := s.anImport()
	if im == nil {
		return
	}
	off, n := s.odd(im.exp.n)
	if s.rarely(4, "over the end") {
		n = im.exp.n - off + 1 + n
		if n < 0 || n > 1<<20 {
			n = 1
		}
	}
	s.say("%s: ReadAt %d bytes at %d of %d of %s (%s)", im.p.name, n, off, im.exp.id, im.exp.owner.name, im.way())
	dst, intact := s.target(n)
	k, err := im.im.ReadAt(dst, int64(off))
	intact()
	faults, want := byteFaults(im, off, n, mayRead), n
	if off >= 0 && off <= im.exp.n && n > im.exp.n-off { // what there is, and io.EOF
		want = im.exp.n - off
		faults = byteFaults(im, off, want, mayRead)
		reach("states", "a read over the end")
	}
	allowed := append(slices.Clone(faults), im.ends()...)
	if len(faults) == 0 && (n == 0 || want == 0) && !im.closed && !im.p.closed {
		allowed = append(allowed, ok) // nothing is asked of anybody
	}
	if len(allowed) == 0 || len(faults) == 0 && want == 0 {
		allowed = append(allowed, ok)
	}
	if want < n {
		for i, a := range allowed {
			if a == ok {
				allowed[i] = result{code: eof}
			}
		}
	}
	r := s.expect("ReadAt "+im.way(), err, allowed...)
	if r != ok && r.code != eof {
		if k != 0 {
			s.fail("ReadAt: bytes and an error")
		}
		return
	}
	if k != want {
		s.fail("ReadAt: another number of bytes than there are")
	}
	reach("calls", "Import.ReadAt "+im.way())
	if k > 0 {
		s.fetched(im, dst[:k], off, false)
	}
}

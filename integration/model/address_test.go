package model_test

import (
	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

var _ = declare("calls", "DestSpace.Add", "Lookup")

var _ = declare("states", "an address of a closed import", "an address between imports")

// addressed is a range of a process's DestSpace, which never becomes another's.
type addressed struct {
	im    *imported
	begin manual.ProxyAddr
	end   manual.ProxyAddr
}

// checkAddress takes note of a new import's range.
func (s *sequence) checkAddress(im *imported) {
	a, err := im.p.dest.Add(im.im)
	s.expect("DestSpace.Add", err, ok)
	reach("calls", "DestSpace.Add")
	im.addr = a
	n := addressed{im, a, a + manual.ProxyAddr(im.exp.n)}
	if n.begin == 0 || n.end < n.begin || n.begin%4 != 0 {
		s.fail("DestSpace.Add: no range of addresses")
	}
	for _, o := range im.p.space {
		if n.begin < o.end && o.begin < n.end {
			s.fail("DestSpace.Add: a range that was another import's")
		}
	}
	im.p.space = append(im.p.space, n)
}

// addresses looks up addresses of DestSpace.
func (s *sequence) addresses() {
	p := pick(s, s.open(), "process")
	if len(p.space) == 0 {
		_, _, err := p.dest.Lookup(1 << 32)
		s.expect("Lookup", err, result{code: vmmc.ErrBadProxyAddr})
		return
	}
	a := pick(s, p.space, "range")
	n := int(a.end - a.begin)
	off := pick(s, []int{0, n - 1, n / 2, n, -1, 4 * s.below(n/4, "word")}, "offset")
	s.say("%s: look up %d of %d bytes", p.name, off, n)
	im, at, err := p.dest.Lookup(a.begin + manual.ProxyAddr(off))
	reach("calls", "Lookup")
	if off < 0 || off >= n || a.im.closed {
		if a.im.closed {
			reach("states", "an address of a closed import")
		} else {
			reach("states", "an address between imports")
		}
		s.expect("Lookup", err, result{code: vmmc.ErrBadProxyAddr})
		return
	}
	s.expect("Lookup", err, ok)
	if im != a.im.im || at != off {
		s.fail("Lookup: another import or offset")
	}
}

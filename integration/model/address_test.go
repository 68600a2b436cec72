package model_test

import "github.com/vmmc-go/vmmc"

var _ = declare("calls", "Import.Addr", "Lookup")

var _ = declare("states", "an address of a closed import", "an address between imports")

// addressed is a range of a process's DestSpace, which never becomes another's.
type addressed struct {
	im    *imported
	begin vmmc.ProxyAddr
	end   vmmc.ProxyAddr
}

// checkAddress takes note of a new import's range.
func (s *sequence) checkAddress(im *imported) {
	a := im.im.Addr()
	reach("calls", "Import.Addr")
	n := addressed{im, a, a + vmmc.ProxyAddr(im.exp.n)}
	if n.begin == 0 || n.end < n.begin || n.begin%4 != 0 {
		s.fail("Import.Addr: no range of addresses")
	}
	for _, o := range im.p.space {
		if n.begin < o.end && o.begin < n.end {
			s.fail("Import.Addr: a range that was another import's")
		}
	}
	im.p.space = append(im.p.space, n)
}

// addresses looks up addresses of DestSpace.
func (s *sequence) addresses() {
	p := pick(s, s.open(), "process")
	if len(p.space) == 0 {
		_, _, err := p.p.Lookup(1 << 32)
		s.expect("Lookup", err, result{code: vmmc.ErrBadProxyAddr})
		return
	}
	a := pick(s, p.space, "range")
	n := int(a.end - a.begin)
	off := pick(s, []int{0, n - 1, n / 2, n, -1, 4 * s.below(n/4, "word")}, "offset")
	s.say("%s: look up %d of %d bytes", p.name, off, n)
	im, at, err := p.p.Lookup(a.begin + vmmc.ProxyAddr(off))
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

package model_test

import "slices"

// span draws a range of an export of size bytes, or now and then one that is not.
func (s *sequence) span(size int) (off, n int) {
	words := size / 4
	kind := s.below(20, "span")
	switch {
	case kind < 8: // some words anywhere
		off = 4 * s.below(words, "offset")
		n = 4 * (1 + s.below(min(words-off/4, 64), "length"))
	case kind < 11: // near another one
		off = 4 * s.below(min(words, 4), "offset")
		n = 4 * (1 + s.below(min(words-off/4, 4), "length"))
	case kind < 13:
		n = size
	case kind < 15: // to the end
		off = 4 * s.below(words, "offset")
		n = size - off
	case kind < 17 && size > eager/2: // around what travels in one piece
		edge := pick(s, []int{eager, 256 << 10, 512 << 10}, "edge")
		n = min(size, edge-4+4*s.below(3, "beyond"))
		off = 4 * s.below((size-n)/4+1, "offset")
	default:
		off = pick(s, []int{0, 4, size - 4, size, -4, 2, size + 4, 1 << 40}, "offset")
		n = pick(s, []int{4, 0, 3, size, size + 4, 6, 8}, "length")
	}
	return off, n
}

// near draws a range about the one that is redirected, if there is one.
func (s *sequence) near(e *export) (off, n int) {
	p := e.posted
	if p == nil || s.below(4, "near") == 0 {
		return s.span(e.n)
	}
	var edges []int
	for _, at := range []int{p.lo, p.hi, p.lo + (p.hi-p.lo)/8*4} {
		for _, d := range []int{0, -4, 4, -16, 16} {
			if at+d >= 0 && at+d <= e.n && !slices.Contains(edges, at+d) {
				edges = append(edges, at+d)
			}
		}
	}
	a, b := pick(s, edges, "edge"), pick(s, edges, "edge")
	if a == b {
		b = e.n
	}
	return min(a, b), max(a, b) - min(a, b)
}

// odd draws a range for the calls that take any bytes.
func (s *sequence) odd(size int) (off, n int) {
	if s.rarely(8, "outside") {
		return pick(s, []int{size + 1, -1, size - 1, size, 1 << 40}, "offset"), pick(s, []int{1, 3, 0, size + 1}, "length")
	}
	off = s.below(size+1, "offset")
	return off, min(s.below(100, "length"), size-off)
}

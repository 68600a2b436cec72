package simnet

import "slices"

// way is what happens to the bytes of one direction.
type way struct {
	faults []Fault // that have not begun
	at     int64   // bytes that were taken
	ended  bool    // by Trunc

	within Kind   // Lose, Repeat or Swap, of whose bytes
	left   int64  // so many are still to come
	held   []byte // what of them passes later, or again
}

// take takes some of b and says what they become: out is passed on, and then f happens if
// it is one. The rest is to be taken next. b is changed, and out may be part of it.
func (w *way) take(b []byte) (out, rest []byte, f Fault) {
	switch {
	case w.ended:
		return nil, nil, Fault{}
	case w.left > 0:
		out, rest = w.ranged(b)
		return out, rest, Fault{}
	case len(w.faults) > 0 && w.faults[0].At <= w.at:
		return nil, b, w.begin(b)
	}
	n := int64(len(b))
	if len(w.faults) > 0 {
		n = min(n, w.faults[0].At-w.at)
	}
	w.at += n
	return b[:n], b[n:], Fault{}
}

// begin begins the next fault at the first byte of b, and gives it if it is not of the
// bytes alone.
func (w *way) begin(b []byte) Fault {
	f := w.faults[0]
	w.faults = w.faults[1:]
	switch f.Kind {
	case Flip:
		b[0] ^= 1 << (f.Bit % 8)
		return Fault{}
	case Lose, Repeat:
		w.within, w.left = f.Kind, f.Len
		return Fault{}
	case Swap:
		w.within, w.left = f.Kind, 2*f.Len
		return Fault{}
	case Trunc:
		w.ended = true
	}
	return f
}

// ranged takes bytes that a fault began with.
func (w *way) ranged(b []byte) (out, rest []byte) {
	n := min(int64(len(b)), w.left)
	b, rest = b[:n], b[n:]
	w.at, w.left = w.at+n, w.left-n
	if w.within == Lose {
		return nil, rest
	}
	w.held = append(w.held, b...)
	switch all := w.held; {
	case w.left > 0 && w.within == Swap:
		return nil, rest
	case w.left > 0:
		return b, rest
	case w.within == Swap:
		w.held = nil
		return slices.Concat(all[len(all)/2:], all[:len(all)/2]), rest
	default:
		w.held = nil
		return slices.Concat(b, all), rest
	}
}

// rest is what is still to be passed on where nothing more comes.
func (w *way) rest() []byte {
	if w.within == Swap {
		return w.held
	}
	return nil
}

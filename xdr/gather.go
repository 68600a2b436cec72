package xdr

// pieces is what an Encoder that gathers knows of the data that it refers to.
type pieces struct {
	least   int // bytes of opaque data from which on it is referred to; 0: never
	outside int // bytes that are referred to
	cuts    []cut
}

// cut is data that belongs before the byte at of the buffer.
type cut struct {
	at   int
	data []byte
}

// Gather makes e refer to variable-length opaque data of at least least bytes instead of copying
// it: such data must not change until [Encoder.Pieces] is done with. It holds until the next Reset.
func (e *Encoder) Gather(least int) { e.least = max(least, 1) }

func (e *Encoder) gathers(b []byte) bool {
	return e.least > 0 && len(b) >= e.least && e.err == nil
}

func (e *Encoder) refer(b []byte) {
	e.cuts = append(e.cuts, cut{len(e.buf), b})
	e.outside += len(b)
	if pad := e.take(-len(b) & 3); pad != nil {
		clear(pad)
	}
}

// Pieces appends to dst the slices that hold what was encoded, in their order: parts of the buffer,
// from its first byte on, and the data that was referred to.
func (e *Encoder) Pieces(dst [][]byte) [][]byte {
	from := 0
	for _, c := range e.cuts {
		if c.at > from {
			dst = append(dst, e.buf[from:c.at])
		}
		dst = append(dst, c.data)
		from = c.at
	}
	if len(e.buf) > from {
		dst = append(dst, e.buf[from:])
	}
	return dst
}

package model_test

import "github.com/vmmc-go/vmmc"

var _ = declare("calls", "SendV mapped", "SendV stream")

var _ = declare("states", "a message of several pieces", "a message of several pieces over 64 KiB", "an empty piece", "a piece that is not whole words")

// sendPieces sends one message from several places.
func (s *sequence) sendPieces() {
	im := s.anImport()
	if im == nil {
		return
	}
	c := sending{im: im, call: "SendV"}
	c.off, c.n = s.span(im.exp.n)
	c.faults = im.faults(c.off, c.n, mayWrite)
	ctx, stop, ended := s.aContext(c.n)
	defer stop()
	c.ended = ended
	var cuts []int
	for range s.below(4, "pieces") {
		cuts = append(cuts, 4*s.below(c.n/4+1, "cut"))
	}
	if c.n > 8 && s.rarely(10, "odd piece") {
		cuts = append([]int{3}, cuts...)
		c.faults = append(c.faults, results(vmmc.ErrBadAlignment)...)
		reach("states", "a piece that is not whole words")
	}
	s.dispatch(&c, func(src []byte) error {
		pieces, at := [][]byte{}, 0
		for _, cut := range cuts {
			if cut < at {
				cut = at
			}
			if cut == at {
				reach("states", "an empty piece")
			}
			pieces = append(pieces, src[at:cut])
			at = cut
		}
		pieces = append(pieces, src[at:])
		if len(pieces) > 1 {
			reach("states", "a message of several pieces")
			if len(src) > eager {
				reach("states", "a message of several pieces over 64 KiB")
			}
		}
		return im.im.SendV(ctx, pieces, c.off)
	})
}

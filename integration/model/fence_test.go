package model_test

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// fence makes a fence by some import.
func (s *sequence) fence() {
	im := s.anImport()
	if im == nil {
		return
	}
	ctx, stop, ended := s.aContext(0)
	defer stop()
	s.fenceWith(ctx, im, ended)
}

// fenceOf makes one that is to succeed.
func (s *sequence) fenceOf(im *imported) {
	ctx, stop := s.within()
	defer stop()
	s.fenceWith(ctx, im, false)
}

var _ = declare("calls", "Fence mapped", "Fence stream")

var _ = declare("states", "a fence with messages under way", "a fence after the export's end")

func (s *sequence) fenceWith(ctx context.Context, im *imported, ended bool) {
	s.say("%s: fence by %d of %s (%s), ended context %v", im.p.name, im.exp.id, im.exp.owner.name, im.way(), ended)
	ends := im.ends()
	allowed := ends
	// A fence by the stream that finds nothing under way may not have heard of the end.
	if len(ends) == 0 || !im.closed && !im.p.closed && !im.mapped && !im.known && !im.lost {
		allowed = append(allowed, ok)
	}
	if ended {
		allowed = append(allowed, results(vmmc.ErrCanceled)...)
	}
	r := s.expect(fmt.Sprintf("Fence %s", im.way()), im.im.Fence(ctx), allowed...)
	im.noted(r)
	if im.exp.closed {
		reach("states", "a fence after the export's end")
	}
	if r == ok {
		reach("calls", "Fence "+im.way())
		if len(im.link.pending) > 0 {
			reach("states", "a fence with messages under way")
		}
		s.acknowledged(im.link)
	}
}

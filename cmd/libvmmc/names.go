//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
)

// within bounds an operation by C's milliseconds, or not if they are negative.
func within(ctx context.Context, milliseconds C.uint64_t) (context.Context, context.CancelFunc) {
	if limit := int64(milliseconds); limit >= 0 {
		return context.WithTimeout(ctx, time.Duration(limit)*time.Millisecond)
	}
	return context.WithCancel(ctx)
}

// publish is vmmcx_publish and vmmcx_unpublish.
func (l *library) publish(ctx context.Context, r *record) error {
	op := "publish"
	if r.op == C.VMMCB_UNPUBLISH {
		op = "unpublish"
	}
	x, err := l.exports.find(op, r.in[0])
	if err != nil {
		return err
	}
	if r.op == C.VMMCB_UNPUBLISH {
		return x.e.Unpublish(ctx, string(r.given()))
	}
	return x.e.PublishAs(ctx, string(r.given()))
}

// importName is vmmcx_import_name.
func (l *library) importName(ctx context.Context, p *vmmc.Process, r *record) error {
	ctx, cancel := within(ctx, r.in[0])
	defer cancel()
	im, err := p.ImportName(ctx, string(r.given()))
	if err != nil {
		return err
	}
	return l.give(im, r)
}

// endOf is the code of a context's end.
func endOf(err error) vmmc.Code {
	if errors.Is(err, context.DeadlineExceeded) {
		return vmmc.ErrTimeout
	}
	return vmmc.ErrCanceled
}

// members is the group of this process, which the first call joins.
func (l *library) members(ctx context.Context, p *vmmc.Process) (*group.Group, error) {
	if vmmc.InHandler() {
		return nil, &vmmc.Error{Op: "use the group", Code: vmmc.ErrNotInHandler, Err: vmmc.ErrNotInHandler}
	}
	if err := l.joining.Acquire(ctx); err != nil {
		return nil, &vmmc.Error{Op: "join the group", Code: endOf(err), Err: fmt.Errorf("another thread is joining it: %w", err)}
	}
	defer l.joining.Release()
	if l.group != nil {
		return l.group, nil
	}
	g, err := group.Join(ctx, p)
	if err == nil {
		l.group = g
	}
	return g, err
}

// onGroup is an operation on the group of this process.
func (l *library) onGroup(ctx context.Context, p *vmmc.Process, r *record) error {
	limit := r.in[0]
	switch r.op {
	case C.VMMCB_GROUP:
		limit = ^C.uint64_t(0)
	case C.VMMCB_MEMBER:
		limit = r.in[1]
	}
	ctx, cancel := within(ctx, limit)
	defer cancel()
	g, err := l.members(ctx, p)
	if err != nil {
		return err
	}
	switch r.op {
	case C.VMMCB_GROUP:
		r.out[0], r.out[1] = C.uint64_t(g.Rank()), C.uint64_t(g.Size())
		return nil
	case C.VMMCB_BARRIER:
		return g.Barrier(ctx)
	case C.VMMCB_LEAVE:
		return g.Leave(ctx)
	}
	id, err := g.Member(ctx, int(int64(r.in[0])))
	if err == nil {
		r.out[0], r.out[1] = l.nodes.number(id.Node), C.uint64_t(id.PID)
	}
	return err
}

// give gives C an import.
func (l *library) give(im *vmmc.Import, r *record) error {
	i := &imported{given: true}
	var err error
	if i.handle, err = l.imports.add(i); err == nil {
		if err = l.open(i, im); err != nil {
			l.imports.remove(i.handle)
		}
	}
	if err != nil {
		return errors.Join(err, im.Close())
	}
	r.out[0], r.out[1], r.out[2] = i.handle, C.uint64_t(i.begin), C.uint64_t(im.Size())
	return nil
}

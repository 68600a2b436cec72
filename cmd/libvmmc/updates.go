//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"sync"

	"github.com/vmmc-go/vmmc"
)

// updates are the bindings that vmmcx_map has made, by the address of their memory.
type updates struct {
	mu  sync.Mutex
	all map[C.uint64_t]*vmmc.Binding // Guarded by mu.
}

func (u *updates) find(op string, address C.uint64_t) (*vmmc.Binding, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b := u.all[address]; b != nil {
		return b, nil
	}
	return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: errors.New("no mapped memory begins at this address")}
}

// mapMemory is vmmcx_map.
func (l *library) mapMemory(r *record) error {
	n := uint64(r.in[1])
	im, off, err := l.importAt("map memory", r.in[2], n)
	if err != nil {
		return err
	}
	var opts []vmmc.BindOption
	if r.in[3] != 0 {
		opts = append(opts, vmmc.NotifyUpdates())
	}
	b, err := im.Bind(r.memory(0, n), off, opts...)
	if err != nil {
		return err
	}
	l.updates.mu.Lock()
	l.updates.all[r.in[0]] = b
	l.updates.mu.Unlock()
	return nil
}

// onUpdates is vmmcx_flush and vmmcx_unmap. What was stored before the memory is unmapped is carried
// over, unless the import has ended.
func (l *library) onUpdates(ctx context.Context, r *record) error {
	op := "flush"
	if r.op == C.VMMCB_UNMAP {
		op = "unmap memory"
	}
	b, err := l.updates.find(op, r.in[0])
	if err != nil {
		return err
	}
	err = b.Flush(ctx)
	if r.op == C.VMMCB_FLUSH || errors.Is(err, vmmc.ErrNotInHandler) {
		return err
	}
	if b.Err() != nil { // there is nothing that the program could do about it
		err = nil
	}
	if e := b.Close(); e != nil {
		return e
	}
	l.updates.mu.Lock()
	if l.updates.all[r.in[0]] == b {
		delete(l.updates.all, r.in[0])
	}
	l.updates.mu.Unlock()
	return err
}

//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/manual"
)

// hosts gives as many nodes as the record has room for, from one index on.
func (l *library) hosts(p *vmmc.Process, r *record) error {
	all := p.AllHosts()
	if r.in[0] != 0 {
		var err error
		if all, err = p.SessionHosts(); err != nil {
			return err
		}
	}
	r.out[0] = C.uint64_t(len(all))
	room := r.data()
	n := 0
	for i := r.in[1]; i < C.uint64_t(len(all)) && n+8 <= len(room); i++ {
		binary.NativeEndian.PutUint64(room[n:], uint64(l.nodes.number(all[i])))
		n += 8
	}
	r.data_len = C.uint32_t(n)
	return nil
}

func (l *library) spawn(ctx context.Context, p *vmmc.Process, r *record) error {
	var words []string
	for _, w := range bytes.SplitAfter(r.given(), []byte{0}) {
		if len(w) > 0 {
			words = append(words, string(w[:len(w)-1]))
		}
	}
	pid, err := p.Spawn(ctx, l.nodes.node(r.in[0]), words[0], words[1:]...)
	r.out[0] = C.uint64_t(pid)
	return err
}

func (l *library) alloc(p *vmmc.Process, r *record) error {
	m, err := p.Alloc(int(r.in[0]))
	if err != nil {
		return err
	}
	at := &m.Bytes()[0]
	l.memories.Store(uintptr(unsafe.Pointer(at)), m)
	*(**byte)(unsafe.Pointer(&r.out[0])) = at // a mapping, not the heap
	return nil
}

func (l *library) free(r *record) error {
	m, ok := l.memories.Load(uintptr(r.in[0]))
	if !ok {
		return &vmmc.Error{
			Op: "free memory", Code: vmmc.ErrBadArg,
			Err: errors.New("the address is not one that vmmcx_alloc returned"),
		}
	}
	err := m.(*vmmc.Memory).Close()
	if err == nil {
		l.memories.Delete(uintptr(r.in[0]))
	}
	return err
}

func (l *library) export(p *vmmc.Process, r *record) error {
	opts := make([]vmmc.ExportOption, 0, 4)
	switch r.in[4] & (C.VMMCB_EXPORT_READ | C.VMMCB_EXPORT_WRITE) {
	case C.VMMCB_EXPORT_READ:
		opts = append(opts, vmmc.ReadOnly())
	case C.VMMCB_EXPORT_WRITE:
		opts = append(opts, vmmc.WriteOnly())
	}
	if r.in[4]&C.VMMCB_EXPORT_REDIRECTABLE != 0 {
		opts = append(opts, vmmc.Redirectable())
	}
	if r.in[4]&C.VMMCB_EXPORT_GLOBAL != 0 {
		opts = append(opts, vmmc.GlobalSpace())
	}
	if f := r.in[3]; f != 0 {
		opts = append(opts, vmmc.WithHandler(l.handler(f)))
	}
	e, err := p.Export(uint32(r.in[2]), r.memory(0, uint64(r.in[1])), opts...)
	if err != nil {
		return err
	}
	h, err := l.exports.add(&exported{e: e})
	if err != nil {
		return errors.Join(err, e.Close())
	}
	r.out[0] = h
	return nil
}

// onExport is an operation on an export.
func (l *library) onExport(ctx context.Context, r *record) error {
	op := map[C.uint32_t]string{
		C.VMMCB_UNEXPORT: "unexport", C.VMMCB_DATA_END: "read the end of data",
		C.VMMCB_CLEAR_END: "clear the end of data", C.VMMCB_POST_REDIR: "redirect",
		C.VMMCB_END_REDIR: "end a redirection",
	}[r.op]
	x, err := l.exports.find(op, r.in[0])
	if err != nil {
		return err
	}
	switch r.op {
	case C.VMMCB_UNEXPORT:
		err = x.e.Close()
		if err == nil {
			l.endExport(x, r.in[0])
		}
		return err
	case C.VMMCB_DATA_END:
		l.giveEnd(x, r.in[0])
		off, ok := x.e.DataEnd()
		if !ok {
			return manual.ErrNoSuchError
		}
		r.out[0] = C.uint64_t(off / 4) // the manual counts words
		return nil
	case C.VMMCB_CLEAR_END:
		l.giveEnd(x, r.in[0])
		x.e.ClearDataEnd()
		return nil
	case C.VMMCB_POST_REDIR:
		return x.e.PostRedir(r.memory(3, uint64(r.in[2])), int(r.in[1]))
	}
	n, first, err := x.e.EndRedir(ctx)
	r.out[0], r.out[1] = C.uint64_t(n), C.uint64_t(first)
	return err
}

// importTimeout bounds how long vmmc_ImportRecvBuf waits for an export. 0: as long as it takes.
func importTimeout() (time.Duration, error) {
	v := env.Get("VMMC_IMPORT_TIMEOUT")
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err == nil && d <= 0 {
		err = errors.New("it is not positive")
	}
	if err != nil {
		return 0, &vmmc.Error{
			Op: "read VMMC_IMPORT_TIMEOUT", Code: vmmc.ErrBadConfig,
			Err: fmt.Errorf("%q is no time such as 30s: %w", v, err),
		}
	}
	return d, nil
}

// importBuffer is vmmc_ImportRecvBuf.
func (l *library) importBuffer(ctx context.Context, p *vmmc.Process, r *record) error {
	limit, err := importTimeout()
	if err != nil {
		return err
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	im, err := p.Import(ctx, l.nodes.node(r.in[0]), vmmc.PID(r.in[1]), uint32(r.in[2]))
	if err != nil {
		return err
	}
	return l.give(im, r)
}

// beginImport is vmmc_ImportRecvBufAsync.
func (l *library) beginImport(p *vmmc.Process, r *record) error {
	if vmmc.InHandler() {
		return &vmmc.Error{Op: "begin to import", Code: vmmc.ErrNotInHandler, Err: vmmc.ErrNotInHandler}
	}
	i := &imported{async: true}
	h, err := l.imports.add(i)
	if err != nil {
		return err
	}
	i.mu.Lock()
	i.handle = h
	i.request = manual.ImportAsync(context.Background(), p, l.nodes.node(r.in[0]), vmmc.PID(r.in[1]), uint32(r.in[2]))
	i.mu.Unlock()
	r.out[0] = h
	return nil
}

// importState is vmmc_ImportRecvBufStatus.
func (l *library) importState(r *record) error {
	const op = "ask for an import"
	i, ok := l.imports.get(r.in[0])
	if !ok {
		return &vmmc.Error{
			Op: op, Code: vmmc.ErrBadAsyncHandle,
			Err: errors.New("no import has this handle, or it has ended"),
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.given {
		return &vmmc.Error{Op: op, Code: vmmc.ErrStaleHandle, Err: errors.New("the import was given out already")}
	}
	im, err := i.request.Status()
	if err != nil {
		return err
	}
	i.given = true
	if err := l.open(i, im); err != nil {
		return errors.Join(err, im.Close())
	}
	r.out[0], r.out[1], r.out[2] = i.handle, C.uint64_t(i.begin), C.uint64_t(im.Size())
	return nil
}

// unimport is vmmc_UnimportRecvBuf. Of an import that is being made it is the end of the request.
func (l *library) unimport(r *record) error {
	const op = "unimport"
	i, ok := l.imports.get(r.in[0])
	switch {
	case !ok && kindOf(r.in[0]) != kindImport:
		return &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: errors.New("this is no import's handle")}
	case !ok:
		return &vmmc.Error{Op: op, Code: vmmc.ErrBadIbufState, Err: errors.New("the handle's import has ended")}
	case vmmc.InHandler():
		return &vmmc.Error{Op: op, Code: vmmc.ErrNotInHandler, Err: vmmc.ErrNotInHandler}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !l.imports.remove(r.in[0]) { // another thread was quicker
		return &vmmc.Error{Op: op, Code: vmmc.ErrBadIbufState, Err: errors.New("the handle's import has ended")}
	}
	l.countEnded()
	l.shut(i)
	if im := i.im.Load(); im != nil {
		return im.Close()
	}
	if i.request != nil {
		i.request.Cancel()
	}
	return nil
}

// importOf is the import that C has found an address in.
func (l *library) importOf(op string, r *record) (*vmmc.Import, error) {
	if i, ok := l.imports.get(r.in[1]); ok {
		if im := i.im.Load(); im != nil {
			return im, nil
		}
	}
	return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadProxyAddr, Err: errors.New("the import has ended")}
}

// transfer sends or gets.
func (l *library) transfer(ctx context.Context, r *record) error {
	op := "send"
	if r.op == C.VMMCB_GET {
		op = "get"
	}
	im, err := l.importOf(op, r)
	if err != nil {
		return err
	}
	mem, off := r.memory(3, uint64(r.in[4])), int(r.in[2])
	how := r.in[5]
	if how&C.VMMCB_ASYNC == 0 {
		switch {
		case r.op == C.VMMCB_GET:
			return im.Get(ctx, mem, off)
		case how&C.VMMCB_NOTIFY != 0:
			return im.SendNotify(ctx, mem, off)
		}
		return im.Send(ctx, mem, off)
	}
	var q vmmc.Request
	switch {
	case r.op == C.VMMCB_GET:
		q, err = im.GetAsync(ctx, mem, off)
	case how&C.VMMCB_NOTIFY != 0:
		q, err = im.SendNotifyAsync(ctx, mem, off)
	default:
		q, err = im.SendAsync(ctx, mem, off)
	}
	if err == nil {
		r.out[0] = C.uint64_t(l.requests.add(q))
	}
	return err
}

// finishSend ends a send whose message C has stored.
func (l *library) finishSend(r *record) error {
	im, err := l.importOf("send", r)
	if err == nil {
		return link.ImportsOutside.FinishSend(im, int(r.in[2]), int(r.in[4]))
	}
	return fmt.Errorf("%w: %w", vmmc.ErrOutcomeUnknown, err)
}

// fence waits until a message has arrived that vmmcgo_now could not write at once.
func (l *library) fence(ctx context.Context, r *record) error {
	im, err := l.importOf("send", r)
	if err != nil {
		return err
	}
	if err := im.Fence(ctx); err != nil {
		return fmt.Errorf("%w: %w", vmmc.ErrOutcomeUnknown, err)
	}
	return nil
}

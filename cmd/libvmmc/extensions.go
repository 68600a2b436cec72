//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/vmmc-go/vmmc"
)

// number is the number of the import whose slots an address lies in, or no import's.
func (s *space) number(a uint64) uint32 {
	if a>>C.VMMCB_ADDR_BITS != 0 {
		return C.VMMCB_NO_IMPORT
	}
	l := (*leaf)(atomic.LoadPointer((*unsafe.Pointer)(unsafe.Pointer(&s.top[a/pieceSize]))))
	if l == nil {
		return C.VMMCB_NO_IMPORT
	}
	return atomic.LoadUint32(&l[a%pieceSize/slotSize])
}

// importAt is the import that has n bytes at an address of DestSpace, and their offset.
func (l *library) importAt(op string, address C.uint64_t, n uint64) (*vmmc.Import, int, error) {
	a := uint64(address)
	if k := l.space.number(a); k != 0 && k < C.VMMCB_IMPORTS {
		h := atomic.LoadUint64((*uint64)(unsafe.Pointer(&l.importEntry(k).handle)))
		if i, ok := l.imports.get(C.uint64_t(h)); ok {
			im := i.im.Load()
			if im != nil && a >= i.begin && a-i.begin <= uint64(im.Size()) && n <= uint64(im.Size())-(a-i.begin) {
				return im, int(a - i.begin), nil
			}
		}
	}
	return nil, 0, &vmmc.Error{Op: op, Code: vmmc.ErrBadProxyAddr, Err: fmt.Errorf("%#x does not lie within an import", a)}
}

// fenceAt is vmmcx_fence.
func (l *library) fenceAt(ctx context.Context, r *record) error {
	im, _, err := l.importAt("fence", r.in[0], 0)
	if err != nil {
		return err
	}
	return im.Fence(ctx)
}

// atomic changes a word of an import as one step.
func (l *library) atomic(ctx context.Context, r *record) error {
	size, value, expected := r.in[1], uint64(r.in[3]), uint64(r.in[4])
	im, off, err := l.importAt("change a word", r.in[0], uint64(size))
	if err != nil {
		return err
	}
	var old32 uint32
	var old uint64
	switch op := r.in[2]; {
	case op == C.VMMCB_FETCH_ADD && size == 4:
		old32, err = im.FetchAdd32(ctx, off, uint32(value))
	case op == C.VMMCB_FETCH_ADD:
		old, err = im.FetchAdd64(ctx, off, value)
	case op == C.VMMCB_SWAP && size == 4:
		old32, err = im.Swap32(ctx, off, uint32(value))
	case op == C.VMMCB_SWAP:
		old, err = im.Swap64(ctx, off, value)
	case size == 4:
		old32, _, err = im.CompareAndSwap32(ctx, off, uint32(expected), uint32(value))
	default:
		old, _, err = im.CompareAndSwap64(ctx, off, expected, value)
	}
	r.out[0] = C.uint64_t(old | uint64(old32))
	return err
}

// wordAt is the word of an export at an address.
func (e *exports) wordAt(op string, address C.uint64_t) (vmmc.Word, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for i := range e.entries {
		if e.entries[i].handle == 0 {
			continue
		}
		x := e.entries[i].value.e
		b := x.Bytes()
		begin := C.uint64_t(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
		if address >= begin && address-begin < C.uint64_t(len(b)) {
			return x.Word(int(address - begin))
		}
	}
	return vmmc.Word{}, &vmmc.Error{
		Op: op, Code: vmmc.ErrBadArg,
		Err: errors.New("the word lies in no export of this process: export its buffer first"),
	}
}

// longestPoll is how long a wait stays on a thread of C, whose signals are blocked meanwhile.
const longestPoll = 50 * time.Microsecond

// pollWord waits for a word on a thread of C, for about as long as a wait of Go polls before it
// sleeps. ctx has ended. ErrCanceled tells C to queue the wait.
func (l *library) pollWord(ctx context.Context, w vmmc.Word, old uint32) error {
	p, err := l.process(ctx)
	if err != nil {
		return err
	}
	// A wait may sleep after a few polls, on a processor that others want.
	ctx, cancel := context.WithTimeout(context.Background(), longestPoll)
	defer cancel()
	err = p.WaitUntil(ctx, func() bool { return w.Load() != old })
	if errors.Is(err, vmmc.ErrTimeout) {
		return vmmc.ErrCanceled
	}
	return err
}

// waitWord is vmmcx_wait_word.
func (l *library) waitWord(ctx context.Context, r *record) error {
	const op = "wait for a word"
	w, err := l.exports.wordAt(op, r.in[0])
	if err != nil {
		return err
	}
	var from *vmmc.Import
	if r.in[3] != 0 {
		i, ok := l.imports.get(r.in[4])
		if ok {
			from = i.im.Load()
		}
		switch {
		case from != nil:
		case kindOf(r.in[4]) != kindImport:
			return &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: errors.New("this is no import's handle")}
		default:
			return &vmmc.Error{Op: op, Code: vmmc.ErrBadIbufState, Err: errors.New("the handle's import has ended, or is being made")}
		}
	}
	old := uint32(r.in[1])
	switch r.in[5] {
	case C.VMMCB_CHECK:
		return nil
	case C.VMMCB_POLL:
		return l.pollWord(ctx, w, old)
	}
	ctx, cancel := within(ctx, r.in[2])
	defer cancel()
	if from != nil {
		_, err = from.WaitWord(ctx, w, old)
	} else {
		_, err = w.Wait(ctx, old)
	}
	return err
}

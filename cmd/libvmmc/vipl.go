//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/vmmc-go/vmmc/via"
)

// vipl has what libvipl's handles name. Each call's result is in out[0] of its record, with VIPL's
// number; package via has the semantics.
type vipl struct {
	nics  table[*viplNIC]
	tags  table[*viplTag]
	vis   table[*viplVI]
	cqs   table[*viplCQ]
	conns table[*viplConn]

	mu     sync.Mutex
	posted map[uint64]*posted // by the addresses of C's descriptors. Guarded by mu.

	streams [C.VMMCB_VIP_STREAMS]eventStream
}

// The kinds of VIPL's handles.
const (
	kindNIC  = 0x2
	kindTag  = 0x3
	kindVI   = 0x4
	kindCQ   = 0x5
	kindConn = 0x6
)

func (v *vipl) init() {
	v.nics.initTable(kindNIC)
	v.tags.initTable(kindTag)
	v.vis.initTable(kindVI)
	v.cqs.initTable(kindCQ)
	v.conns.initTable(kindConn)
	v.posted = map[uint64]*posted{}
	for i := range v.streams {
		v.streams[i].ready = make(chan struct{}, 1)
	}
}

// refuse is an error of a call that package via has not seen.
func refuse(op string, code via.Code, why string) error {
	return &via.Error{Op: op, Code: code, Err: errors.New(why)}
}

// viplCode is VIPL's number of an error.
func viplCode(err error) via.Code {
	var e *via.Error
	var c via.Code
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &c):
		return c
	default:
		return via.ErrResource
	}
}

// settle puts the outcome of a call of VIPL into the record: a code, and a text where more is to say.
func (r *record) settle(err error) {
	r.out[0] = C.uint64_t(viplCode(err))
	var c via.Code
	if err != nil && !errors.As(err, &c) {
		r.say(err.Error())
	}
}

// give puts a value of C into the record's data, behind what is there.
func give[T any](r *record, v *T) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
	r.data_len += C.uint32_t(copy(r.data()[r.data_len:], b))
}

// stale is the error of a handle that names nothing.
func stale(op, what string) error {
	return refuse(op, via.ErrInvalidParameter, "the handle is of no "+what+", or of one that was closed")
}

// known finds what a handle names.
func known[T any](t *table[T], h C.uint64_t, op, what string) (T, error) {
	x, ok := t.get(h)
	if !ok {
		return x, stale(op, what)
	}
	return x, nil
}

// viplOps are the operations. Those that may wait end with the context.
var viplOps = map[C.uint32_t]func(*library, context.Context, *record) error{
	C.VMMCB_VIP_OPEN:       (*library).vipOpen,
	C.VMMCB_VIP_CLOSE:      (*library).vipClose,
	C.VMMCB_VIP_QUERY_NIC:  (*library).vipQueryNIC,
	C.VMMCB_VIP_CHECK_NIC:  (*library).vipCheckNIC,
	C.VMMCB_VIP_ON_ERROR:   (*library).vipOnError,
	C.VMMCB_VIP_EVENT:      (*library).vipEvent,
	C.VMMCB_VIP_NEW_TAG:    (*library).vipNewTag,
	C.VMMCB_VIP_END_TAG:    (*library).vipEndTag,
	C.VMMCB_VIP_REGISTER:   (*library).vipRegister,
	C.VMMCB_VIP_DEREGISTER: (*library).vipDeregister,
	C.VMMCB_VIP_QUERY_MEM:  (*library).vipQueryMem,
	C.VMMCB_VIP_SET_MEM:    (*library).vipSetMem,
	C.VMMCB_VIP_NEW_VI:     (*library).vipNewVI,
	C.VMMCB_VIP_END_VI:     (*library).vipEndVI,
	C.VMMCB_VIP_QUERY_VI:   (*library).vipQueryVI,
	C.VMMCB_VIP_SET_VI:     (*library).vipSetVI,
	C.VMMCB_VIP_LISTEN:     (*library).vipListen,
	C.VMMCB_VIP_ACCEPT:     (*library).vipAccept,
	C.VMMCB_VIP_REJECT:     (*library).vipReject,
	C.VMMCB_VIP_CONNECT:    (*library).vipConnect,
	C.VMMCB_VIP_DISCONNECT: (*library).vipDisconnect,
	C.VMMCB_VIP_PEER:       (*library).vipPeer,
	C.VMMCB_VIP_PEER_TAKE:  (*library).vipPeerTake,
	C.VMMCB_VIP_POST:       (*library).vipPost,
	C.VMMCB_VIP_TAKE:       (*library).vipTake,
	C.VMMCB_VIP_NOTIFY:     (*library).vipNotify,
	C.VMMCB_VIP_NEW_CQ:     (*library).vipNewCQ,
	C.VMMCB_VIP_END_CQ:     (*library).vipEndCQ,
	C.VMMCB_VIP_RESIZE_CQ:  (*library).vipResizeCQ,
	C.VMMCB_VIP_TAKE_CQ:    (*library).vipTakeCQ,
	C.VMMCB_VIP_NOTIFY_CQ:  (*library).vipNotifyCQ,
	C.VMMCB_VIP_CHECK_CQ:   (*library).vipCheckCQ,
	C.VMMCB_VIP_NAMES:      (*library).vipNames,
	C.VMMCB_VIP_BY_NAME:    (*library).vipByName,
	C.VMMCB_VIP_BY_ADDRESS: (*library).vipByAddress,
	C.VMMCB_VIP_USER:       (*library).vipUser,
}

// runVIPL runs an operation of libvipl. Its outcome is in the record, so that a record's code says
// only whether the operation was run.
func (l *library) runVIPL(ctx context.Context, r *record) error {
	f := viplOps[r.op]
	if f == nil {
		return fmt.Errorf("operation %d is not known: libvipl and libvmmc-go do not fit", r.op)
	}
	err := f(l, ctx, r)
	if ctx == ended && errors.Is(err, via.ErrTimeout) {
		err = via.ErrTimeout // C has only looked, and may wait now: the program's last error stays
	}
	r.settle(err)
	return nil
}

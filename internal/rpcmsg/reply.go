package rpcmsg

import (
	"fmt"

	"github.com/vmmc-go/vmmc/xdr"
)

// Outcome is how a call went: RFC 5531's reply_stat, accept_stat and reject_stat as one.
type Outcome uint8

// The outcomes. The first six are accept_stat in its order.
const (
	Success Outcome = iota
	ProgUnavail
	ProgMismatch
	ProcUnavail
	GarbageArgs
	SystemErr
	RPCMismatch
	AuthError
)

const (
	accepted = 0
	denied   = 1

	rejectRPC  = 0
	rejectAuth = 1
)

// Reply is what comes before the results, or all there is where there are none.
type Reply struct {
	XID       uint32
	Outcome   Outcome
	Verf      Auth   // of one that is accepted
	Low, High uint32 // of ProgMismatch and RPCMismatch: the versions that are served
	Why       uint32 // of AuthError: RFC 5531's auth_stat
}

// EncodeXDR writes it.
func (r *Reply) EncodeXDR(e *xdr.Encoder) {
	if r.Outcome == Success && len(r.Verf.Body) == 0 {
		r.encodeBare(e)
		return
	}
	e.Uint32(r.XID)
	e.Uint32(kindReply)
	switch r.Outcome {
	case RPCMismatch:
		e.Uint32(denied)
		e.Uint32(rejectRPC)
		e.Uint32(r.Low)
		e.Uint32(r.High)
	case AuthError:
		e.Uint32(denied)
		e.Uint32(rejectAuth)
		e.Uint32(r.Why)
	default:
		e.Uint32(accepted)
		r.Verf.EncodeXDR(e)
		e.Uint32(uint32(r.Outcome))
		if r.Outcome == ProgMismatch {
			e.Uint32(r.Low)
			e.Uint32(r.High)
		}
	}
}

// DecodeXDR reads it. What is not a reply is an error.
func (r *Reply) DecodeXDR(d *xdr.Decoder) {
	if b := d.Rest(); len(b) >= leastReply && r.decodeBare(b[:leastReply]) {
		d.Next(leastReply)
		return
	}
	*r = Reply{XID: d.Uint32()}
	kind(d, kindReply)
	switch s := d.Uint32(); s {
	case accepted:
		r.accepted(d)
	case denied:
		r.denied(d)
	default:
		bad(d, "reply_stat", s)
	}
}

func (r *Reply) accepted(d *xdr.Decoder) {
	r.Verf.DecodeXDR(d)
	s := d.Uint32()
	if s > uint32(SystemErr) {
		bad(d, "accept_stat", s)
		return
	}
	if r.Outcome = Outcome(s); r.Outcome == ProgMismatch {
		r.Low, r.High = d.Uint32(), d.Uint32()
	}
}

func (r *Reply) denied(d *xdr.Decoder) {
	switch s := d.Uint32(); s {
	case rejectRPC:
		r.Outcome, r.Low, r.High = RPCMismatch, d.Uint32(), d.Uint32()
	case rejectAuth:
		r.Outcome, r.Why = AuthError, d.Uint32()
	default:
		bad(d, "reject_stat", s)
	}
}

func bad(d *xdr.Decoder, what string, v uint32) {
	if d.OK() {
		d.Fail(fmt.Errorf("%w: %s %d", xdr.ErrValue, what, v))
	}
}

package rpcmsg

import (
	"encoding/binary"

	"github.com/vmmc-go/vmmc/xdr"
)

// Calls and successful replies without credentials, as most are, are written and read at once: each
// field by itself takes 30 to 40 instructions, and this some 100 for all of them.

// leastReply is the length of such a reply's header. A call's is LeastCall.
const leastReply = 24

func (c *Call) encodeBare(e *xdr.Encoder) {
	b := e.Next(LeastCall)
	if b == nil {
		return
	}
	be := binary.BigEndian
	_ = b[LeastCall-1]
	be.PutUint32(b, c.XID)
	be.PutUint32(b[4:], kindCall)
	be.PutUint32(b[8:], Version)
	be.PutUint32(b[12:], c.Program)
	be.PutUint32(b[16:], c.Version)
	be.PutUint32(b[20:], c.Procedure)
	be.PutUint32(b[24:], c.Cred.Flavor)
	be.PutUint32(b[28:], 0)
	be.PutUint32(b[32:], c.Verf.Flavor)
	be.PutUint32(b[36:], 0)
}

// decodeBare decodes a call, if it is such a one.
func (c *Call) decodeBare(b []byte) bool {
	be := binary.BigEndian
	_ = b[LeastCall-1]
	if be.Uint32(b[4:]) != kindCall || be.Uint32(b[8:]) != Version || be.Uint32(b[28:]) != 0 ||
		be.Uint32(b[36:]) != 0 {
		return false
	}
	*c = Call{
		XID: be.Uint32(b), RPC: Version,
		Program: be.Uint32(b[12:]), Version: be.Uint32(b[16:]), Procedure: be.Uint32(b[20:]),
		Cred: Auth{Flavor: be.Uint32(b[24:])}, Verf: Auth{Flavor: be.Uint32(b[32:])},
	}
	return true
}

func (r *Reply) encodeBare(e *xdr.Encoder) {
	b := e.Next(leastReply)
	if b == nil {
		return
	}
	be := binary.BigEndian
	_ = b[leastReply-1]
	be.PutUint32(b, r.XID)
	be.PutUint32(b[4:], kindReply)
	be.PutUint32(b[8:], accepted)
	be.PutUint32(b[12:], r.Verf.Flavor)
	be.PutUint32(b[16:], 0)
	be.PutUint32(b[20:], uint32(Success))
}

func (r *Reply) decodeBare(b []byte) bool {
	be := binary.BigEndian
	_ = b[leastReply-1]
	if be.Uint32(b[4:]) != kindReply || be.Uint32(b[8:]) != accepted || be.Uint32(b[16:]) != 0 ||
		be.Uint32(b[20:]) != uint32(Success) {
		return false
	}
	*r = Reply{XID: be.Uint32(b), Verf: Auth{Flavor: be.Uint32(b[12:])}}
	return true
}

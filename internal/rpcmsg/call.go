package rpcmsg

import (
	"encoding/binary"
	"fmt"

	"github.com/vmmc-go/vmmc/xdr"
)

// Version is the one of the protocol.
const Version = 2

// The two kinds of messages.
const (
	kindCall  = 0
	kindReply = 1
)

// LeastCall is the shortest call: without credentials and arguments.
const LeastCall = 40

// Auth is a credential or what verifies one. A decoded Body is part of the message.
type Auth struct {
	Flavor uint32
	Body   []byte
}

// MaxAuth is the length of the longest Body.
const MaxAuth = 400

// EncodeXDR writes it.
func (a *Auth) EncodeXDR(e *xdr.Encoder) {
	e.Uint32(a.Flavor)
	e.Opaque(a.Body, MaxAuth)
}

// DecodeXDR reads it, without a copy if d decodes in place.
func (a *Auth) DecodeXDR(d *xdr.Decoder) {
	a.Flavor = d.Uint32()
	a.Body = d.Opaque(nil, MaxAuth)
}

// Call is what comes before the arguments. Of a call of another version of the protocol only XID and
// RPC say anything.
type Call struct {
	XID, RPC                    uint32
	Program, Version, Procedure uint32
	Cred, Verf                  Auth
}

// EncodeXDR writes a call of this version.
func (c *Call) EncodeXDR(e *xdr.Encoder) {
	if len(c.Cred.Body)+len(c.Verf.Body) == 0 {
		e.Uint32s(c.XID, kindCall, Version, c.Program, c.Version, c.Procedure, c.Cred.Flavor, 0, c.Verf.Flavor, 0)
		return
	}
	e.Uint32s(c.XID, kindCall, Version, c.Program, c.Version, c.Procedure)
	c.Cred.EncodeXDR(e)
	c.Verf.EncodeXDR(e)
}

// DecodeXDR reads it. What is not a call is an error. Without credentials, as most are, it has a length
// that is known, and is read at once.
func (c *Call) DecodeXDR(d *xdr.Decoder) {
	var kind, none uint32
	if b := d.Rest(); len(b) >= LeastCall && zero(b[28:]) && zero(b[36:]) {
		d.Uint32s(&c.XID, &kind, &c.RPC, &c.Program, &c.Version, &c.Procedure, &c.Cred.Flavor, &none, &c.Verf.Flavor, &none)
		c.Cred.Body, c.Verf.Body = nil, nil
		checkKind(d, kind, kindCall)
		return
	}
	d.Uint32s(&c.XID, &kind, &c.RPC)
	checkKind(d, kind, kindCall)
	if c.RPC != Version {
		return
	}
	d.Uint32s(&c.Program, &c.Version, &c.Procedure)
	c.Cred.DecodeXDR(d)
	c.Verf.DecodeXDR(d)
}

// zero says whether an unsigned int is 0, which b begins with.
func zero(b []byte) bool { return binary.BigEndian.Uint32(b) == 0 }

func checkKind(d *xdr.Decoder, got, want uint32) {
	if got != want && d.OK() {
		d.Fail(fmt.Errorf("%w: message of kind %d where %d is due", xdr.ErrValue, got, want))
	}
}

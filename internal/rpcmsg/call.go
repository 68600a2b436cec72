package rpcmsg

import (
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

// Call is what comes before the arguments. Of a call of another version of the protocol only XID
// and RPC are known.
type Call struct {
	XID, RPC                    uint32
	Program, Version, Procedure uint32
	Cred, Verf                  Auth
}

// EncodeXDR writes a call of this version.
func (c *Call) EncodeXDR(e *xdr.Encoder) {
	if len(c.Cred.Body)+len(c.Verf.Body) == 0 {
		c.encodeBare(e)
		return
	}
	e.Uint32(c.XID)
	e.Uint32(kindCall)
	e.Uint32(Version)
	e.Uint32(c.Program)
	e.Uint32(c.Version)
	e.Uint32(c.Procedure)
	c.Cred.EncodeXDR(e)
	c.Verf.EncodeXDR(e)
}

// DecodeXDR reads it. What is not a call is an error.
func (c *Call) DecodeXDR(d *xdr.Decoder) {
	if b := d.Rest(); len(b) >= LeastCall && c.decodeBare(b[:LeastCall]) {
		d.Next(LeastCall)
		return
	}
	c.XID = d.Uint32()
	kind(d, kindCall)
	if c.RPC = d.Uint32(); c.RPC != Version {
		return
	}
	c.Program = d.Uint32()
	c.Version = d.Uint32()
	c.Procedure = d.Uint32()
	c.Cred.DecodeXDR(d)
	c.Verf.DecodeXDR(d)
}

func kind(d *xdr.Decoder, want uint32) {
	if got := d.Uint32(); got != want && d.OK() {
		d.Fail(fmt.Errorf("%w: message of kind %d where %d is due", xdr.ErrValue, got, want))
	}
}

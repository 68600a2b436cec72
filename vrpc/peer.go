package vrpc

import (
	"bytes"
	"context"
	"net"
	"sync"

	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/xdr"
)

// AuthSys is the identity that the caller claims by AUTH_SYS. Nothing proves it.
type AuthSys struct {
	Stamp    uint32
	Machine  string
	UID, GID uint32
	GIDs     []uint32 // at most 16
}

func (a *AuthSys) credential() (rpcmsg.Auth, error) {
	s := rpcmsg.Sys(*a)
	b, err := xdr.Marshal(&s)
	return rpcmsg.Auth{Flavor: rpcmsg.FlavorSys, Body: b}, err
}

// Peer is the caller of a procedure.
type Peer struct {
	Addr net.Addr
	Sys  *AuthSys // nil without AUTH_SYS. It must not be changed.
}

type peerKey struct{}

// PeerOf returns the caller of the procedure that was handed ctx.
func PeerOf(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(*Peer)
	if !ok {
		return Peer{}, false
	}
	return *p, true
}

// caller is one that calls arrive from. It keeps the context of the credentials that came last, as
// they seldom change.
type caller struct {
	base context.Context //nolint:containedctx // the connection's
	addr net.Addr

	mu   sync.Mutex
	last context.Context //nolint:containedctx // for calls with cred
	cred []byte          // encoded, of flavor
	kind uint32
}

// context is what the procedure of a call with these credentials is handed.
func (c *caller) context(a *rpcmsg.Auth) (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.kind == a.Flavor && bytes.Equal(c.cred, a.Body) {
		return c.last, nil
	}
	p := &Peer{Addr: c.addr}
	switch a.Flavor {
	case rpcmsg.FlavorNone:
	case rpcmsg.FlavorSys:
		var s rpcmsg.Sys
		if err := xdr.Unmarshal(a.Body, &s); err != nil {
			return nil, &AuthError{AuthBadCred}
		}
		p.Sys = (*AuthSys)(&s)
	default:
		return nil, &AuthError{AuthRejectedCred}
	}
	c.last = context.WithValue(c.base, peerKey{}, p)
	c.cred, c.kind = append(c.cred[:0], a.Body...), a.Flavor
	return c.last, nil
}

package peers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// relayed are the headers that say what a body is.
var relayed = []string{"Content-Type", "Connect-Protocol-Version"}

// Relay passes a call of a user of this machine on to the node, once, together with the user's
// name.
func (p *Peer) Relay(
	ctx context.Context, user string, r nodeproto.ControlRequest,
) (nodeproto.ControlAnswer, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { sent.Store(true) },
	})
	q, err := NewRequest(ctx, r, hosts.URL(p.host.Control))
	if err != nil {
		return nodeproto.ControlAnswer{}, err
	}
	q.Header.Set(users.Header, user)
	a, err := p.transport.RoundTrip(q)
	if err == nil {
		defer a.Body.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(a.Body, nodeproto.MaxControl+1)); err == nil {
			return Answer(a.StatusCode, a.Header, b)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nodeproto.ControlAnswer{}, context.Cause(ctx)
	case sent.Load() && !idempotent[r.Path]:
		return nodeproto.ControlAnswer{}, code.New(code.OutcomeUnknown,
			"node %q at %s was lost while it was asked; whether it has done it is not known: %v",
			p.host.Name, p.host.Control, err)
	}
	return nodeproto.ControlAnswer{}, code.New(code.Unreachable, "node %q at %s cannot be reached: %v",
		p.host.Name, p.host.Control, err)
}

// NewRequest is a call that is relayed, as an HTTP request to a node.
func NewRequest(
	ctx context.Context, r nodeproto.ControlRequest, base string,
) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, base+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, code.New(code.BadArg, "%q is no call of a service for users: %v", r.Path, err)
	}
	for _, h := range relayed {
		if v := r.Headers[h]; v != "" {
			q.Header.Set(h, v)
		}
	}
	return q, nil
}

// Answer is the answer to a relayed call.
func Answer(status int, h http.Header, body []byte) (nodeproto.ControlAnswer, error) {
	if len(body) > nodeproto.MaxControl {
		return nodeproto.ControlAnswer{}, code.New(code.Protocol, "an answer has more than %d bytes",
			nodeproto.MaxControl)
	}
	a := nodeproto.ControlAnswer{Status: status, Body: body, Headers: map[string]string{}}
	for _, k := range append([]string{codeHeader}, relayed...) {
		if v := h.Get(k); v != "" {
			a.Headers[k] = v
		}
	}
	return a, nil
}

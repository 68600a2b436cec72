package daemon

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// relayed are the headers that say what a body is.
var relayed = []string{"Content-Type", "Connect-Protocol-Version"}

// userService is one that users call: with a certificate, or through the node of
// their machine.
type userService struct {
	prefix  string // of its procedures' paths
	handler http.Handler
}

// userServices are all of them. Services in which a node is trusted more than its
// users are not among them: what is relayed comes with this node's certificate.
func (ctl *control) userServices() []userService {
	of := func(prefix string, h http.Handler) userService { return userService{prefix, h} }
	return []userService{
		of(nodev1connect.NewSessionServiceHandler(&sessionService{ctl.n}, asItIs)),
		of(nodev1connect.NewClusterServiceHandler(&clusterService{ctl.n}, asItIs)),
		of(nodev1connect.NewSystemServiceHandler(&systemService{ctl.n}, asItIs)),
		of(nodev1connect.NewLinkServiceHandler(&linkService{ctl.n}, asItIs)),
	}
}

// relay passes a call of this machine's user on to a service for users, here or on another node,
// together with the user's name.
func (ctl *control) relay(
	ctx context.Context, c caller, r nodeproto.ControlRequest,
) (nodeproto.ControlAnswer, error) {
	services := ctl.userServices()
	i := slices.IndexFunc(services, func(u userService) bool {
		return strings.HasPrefix(r.Path, u.prefix)
	})
	if i < 0 || strings.ContainsAny(r.Path, "?#%") {
		return nodeproto.ControlAnswer{}, code.New(code.BadArg, "%q is no call of a service for users",
			r.Path)
	}
	if r.Node != "" && r.Node != ctl.n.cfg.Name {
		p, err := ctl.n.cluster.peer(r.Node)
		if err != nil {
			return nodeproto.ControlAnswer{}, err
		}
		return p.relay(ctx, c, r)
	}
	q, err := controlHTTP(context.WithValue(ctx, userKey{}, c), r, "http://"+ctl.n.cfg.Name)
	if err != nil {
		return nodeproto.ControlAnswer{}, err
	}
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	services[i].handler.ServeHTTP(w, q)
	return answered(w.status, w.header, w.body.Bytes())
}

// relay asks another node, once.
func (p *peer) relay(
	ctx context.Context, c caller, r nodeproto.ControlRequest,
) (nodeproto.ControlAnswer, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { sent.Store(true) },
	})
	q, err := controlHTTP(ctx, r, hosts.URL(p.host.Control))
	if err != nil {
		return nodeproto.ControlAnswer{}, err
	}
	q.Header.Set(userHeader, c.user)
	a, err := p.transport.RoundTrip(q)
	if err == nil {
		defer a.Body.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(a.Body, nodeproto.MaxControl+1)); err == nil {
			return answered(a.StatusCode, a.Header, b)
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

func controlHTTP(
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

func answered(status int, h http.Header, body []byte) (nodeproto.ControlAnswer, error) {
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

// recorder is an answer in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

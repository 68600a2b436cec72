package daemon

import (
	"context"
	"errors"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// spawn asks another node. The request goes out once: an answer that got lost
// leaves a program of which nobody knows, and a second request would make it two.
func (p *peer) spawn(ctx context.Context, o order, user string) (uint32, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	a, err := p.client.Spawn(ctx, connect.NewRequest(&nodev1.SpawnRequest{
		Parent: processID(o.parent), User: user, Session: o.session,
		Path: o.Path, Args: o.Args, Directory: o.Directory, Hosts: o.Hosts,
		InSession: o.in != nil, Group: o.group, Name: o.name,
	}))
	if err == nil {
		return a.Msg.GetPid(), nil
	}
	if refusedSpawn(err) {
		return 0, p.failed(context.WithoutCancel(ctx), err)
	}
	if !sent.Load() {
		return 0, code.New(code.Unreachable, "node %q at %s cannot be reached: %v", p.host.Name, p.host.Control, err)
	}
	return 0, code.New(code.OutcomeUnknown, "node %q at %s was lost while it was asked; whether it has started %s is not known: %v", p.host.Name, p.host.Control, o.Path, err)
}

// refusedSpawn says whether the other node has answered that it does not.
func refusedSpawn(err error) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return false
	}
	if _, err := strconv.Atoi(ce.Meta().Get(codeHeader)); err == nil {
		return true
	}
	switch ce.Code() { // without our code: it never got to the service
	case connect.CodePermissionDenied, connect.CodeUnimplemented, connect.CodeResourceExhausted:
		return true
	}
	return false
}

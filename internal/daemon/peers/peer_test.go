package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// A request of a local user that asks another node queues when that has answered: each call to the
// node goes by the transport, as the relay and the question for a departed process do.
func TestCallInAShare(t *testing.T) {
	for name, ask := range map[string]func(p *Peer, ctx context.Context) error{
		"relay": func(p *Peer, ctx context.Context) error {
			_, err := p.Relay(ctx, "user", nodeproto.ControlRequest{Path: "/call"})
			return err
		},
		"departed": func(p *Peer, ctx context.Context) error {
			_, err := p.Departed(ctx, nodeproto.ProcessID{Node: "b", PID: 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { callInAShare(t, ask) }) })
	}
}

func callInAShare(t *testing.T, ask func(p *Peer, ctx context.Context) error) {
	logs := &systemlog.Logs{}
	logs.Open(slog.New(slog.DiscardHandler), "")
	dialled, answer := make(chan struct{}), make(chan struct{})
	c := New(Config{Node: "a", Logs: logs, ClientTLS: func(string) *tls.Config { return nil }})
	p := c.newPeer(hosts.Host{Name: "b", Control: "b:1", Data: "b:1"})
	p.transport.Transport = &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			close(dialled)
			<-answer
			return nil, errors.New("the node refuses")
		},
	}
	share := fairshare.New(1)
	asked, runs, other := make(chan error, 1), make(chan struct{}), make(chan struct{})
	share.Begin(func(turn *fairshare.Turn) {
		defer turn.End()
		asked <- ask(p, turn.Context(t.Context()))
	})
	share.Begin(func(turn *fairshare.Turn) {
		defer turn.End()
		close(runs)
		<-other
	})
	<-dialled
	time.Sleep(time.Millisecond) // of the bubble's clock: what a request may run for
	synctest.Wait()
	select {
	case <-runs:
	default:
		t.Fatal("a request that asks another node keeps its slot")
	}
	close(answer)
	synctest.Wait()
	select {
	case err := <-asked:
		close(other)
		t.Fatalf("a request whose node has answered goes on without a slot: %v", err)
	default:
	}
	close(other)
	if err := <-asked; err == nil {
		t.Error("a node that refuses has answered")
	}
}

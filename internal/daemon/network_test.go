//go:build linux

package daemon_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/manual"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// asUser speaks to a node as the user of a certificate.
func asUser(t *testing.T, addr string, cfg *tls.Config) nodev1connect.ClusterServiceClient {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return nodev1connect.NewClusterServiceClient(&http.Client{Transport: tr, Timeout: bound},
		"https://"+addr)
}

// Answers are not compressed, whatever the caller takes, nor are calls taken that are.
func TestNothingIsCompressed(t *testing.T) {
	c := newCluster(t)
	tr := &http.Transport{TLSClientConfig: c.ids["b"].ClientTLS("a")}
	defer tr.CloseIdleConnections()
	call := func(procedure, encoding string) (status int, by string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"https://"+c.a.Addr()+procedure, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/proto"}, "Accept-Encoding": {"gzip"},
			"Content-Encoding": {encoding},
		}
		a, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		return a.StatusCode, a.Header.Get("Content-Encoding")
	}
	if status, by := call(nodev1connect.NodeServicePingProcedure,
		"identity"); status != http.StatusOK || by != "" {
		t.Errorf("a ping was answered %d, by %q", status, by)
	}
	for _, procedure := range []string{
		nodev1connect.NodeServicePingProcedure, nodev1connect.SessionServiceListSessionsProcedure,
		nodev1connect.ClusterServiceNodesProcedure,
		nodev1connect.SystemServiceReadSystemLogProcedure, nodev1connect.LinkServiceLinksProcedure,
		nodev1connect.NameServiceListNamesProcedure, nodev1connect.NodeServiceImportNameProcedure,
	} {
		if status, by := call(procedure, "gzip"); status != http.StatusNotImplemented || by != "" {
			t.Errorf("%s: a call that is compressed was answered %d, by %q", procedure, status, by)
		}
	}
}

// administered is two nodes, of which the user ann administers a.
func administered(t *testing.T, state string) (c *cluster, ann *cert.Identity) {
	t.Helper()
	ids, ann := userIdentity(t)
	c = &cluster{ids: ids}
	for _, n := range []string{"a", "b"} {
		addr := freePort(t)
		c.hosts = append(c.hosts, hosts.Host{Name: n, Control: addr, Data: addr})
	}
	c.a = startNode(t, daemon.Config{
		Name: "a", Socket: anonymous(), Hosts: c.hosts, Identity: ids["a"], Admins: []string{"ann"},
		State: state,
	})
	c.b = c.start(t, "b", c.hosts)
	return c, ann
}

func takeDown(
	t *testing.T, a nodev1connect.ClusterServiceClient, reason string,
) *nodev1.TakeDownResponse {
	t.Helper()
	r, err := a.TakeDown(t.Context(), connect.NewRequest(&nodev1.TakeDownRequest{Reason: reason}))
	if err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

func bringUp(t *testing.T, a nodev1connect.ClusterServiceClient) {
	t.Helper()
	if _, err := a.BringUp(t.Context(), connect.NewRequest(&nodev1.BringUpRequest{})); err != nil {
		t.Fatal(err)
	}
}

// fails sends until it does not succeed any more.
func fails(t *testing.T, im *vmmc.Import) error {
	t.Helper()
	for deadline := time.Now().Add(bound); time.Now().Before(deadline); {
		ctx, stop := context.WithTimeout(t.Context(), bound)
		err := im.Send(ctx, make([]byte, 64), 0)
		stop()
		if err != nil {
			return err
		}
	}
	t.Error("the link goes on")
	return nil
}

func TestTakeDown(t *testing.T) {
	c, ann := administered(t, "")
	admin := asUser(t, c.a.Addr(), ann.ClientTLS("a"))
	from, to, inside, elsewhere := newTraffic(t, c.a, c.b), newTraffic(t, c.b, c.a), newTraffic(t, c.a,
		c.a), newTraffic(t, c.b, c.b)
	for _, tr := range []*traffic{from, to} {
		tr.goesOn(t)
	}
	events := make(chan vmmc.Event, 4)
	p, q := open(t, c.a, vmmc.WithEvents(func(e vmmc.Event) { events <- e })), open(t, c.b)
	if _, err := q.Export(1, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Import(t.Context(), q.Node(), q.PID(), 1); err != nil {
		t.Fatal(err)
	}
	bound := boundMemory(t, c.a, c.b)
	// Imports that wait for an export, in both directions.
	waits := make(chan error, 2)
	for _, w := range [][2]*vmmc.Process{{p, q}, {q, p}} {
		r := manual.ImportAsync(t.Context(), w[0], w[1].Node(), w[1].PID(), 9)
		go func() {
			_, err := r.Wait(context.Background())
			waits <- err
		}()
	}

	_, err := asUser(t, c.b.Addr(), ann.ClientTLS("b")).TakeDown(t.Context(),
		connect.NewRequest(&nodev1.TakeDownRequest{}))
	check(t, "ann does not administer b", ownCode(err), code.NoRights,
		`"ann" does not administer node "b"`)
	from.goesOn(t)

	r := takeDown(t, admin, "new\n card")
	if r.GetLinks() != 4 || len(r.GetSilent()) > 0 || len(r.GetUntold()) > 0 {
		t.Errorf("of a, %v; want its 4 links ended", r)
	}
	const says = `node "a" was taken down by an administrator: new card`
	for what, im := range map[string]*vmmc.Import{"from a": from.im, "to a": to.im} {
		err := fails(t, im)
		check(t, what, err, vmmc.ErrPeerGone, says)
		check(t, what, err, vmmc.ErrUnreachable)
	}
	<-bound.Done()
	for call, err := range map[string]error{
		"Flush": bound.Flush(t.Context()), "Err": bound.Err(), "Store": bound.Store(t.Context(), 0, 1),
	} {
		check(t, call+" of bound memory", err, vmmc.ErrPeerGone, says)
		check(t, call+" of bound memory", err, vmmc.ErrUnreachable)
	}
	for range 2 {
		check(t, "an import that waited", <-waits, vmmc.ErrUnreachable, says)
	}
	if e := <-events; e.Kind != vmmc.PeerGone || e.Peer != q.ID() || !strings.Contains(e.Err.Error(),
		says) {
		t.Errorf("event %+v, want that q is gone, and why", e)
	}
	for _, w := range [][2]*vmmc.Process{{p, q}, {q, p}} {
		_, err := w[0].Import(t.Context(), w[1].Node(), w[1].PID(), 1)
		check(t, "a new import", err, vmmc.ErrUnreachable, says)
	}
	inside.goesOn(t)
	elsewhere.goesOn(t)
	a, err := client(t, c.a.Addr(), c.ids["b"].ClientTLS("a")).Ping(t.Context(),
		connect.NewRequest(&nodev1.PingRequest{}))
	if err != nil || a.Msg.GetState() != nodev1.NodeState_NODE_STATE_DOWN ||
		a.Msg.GetReason() != says {
		t.Errorf("a answers a ping with %v, %v", a, err)
	}
	if r := takeDown(t, admin, "again"); r.GetLinks() != 0 {
		t.Errorf("a node that is down was taken down once more: %v", r)
	}

	bringUp(t, admin)
	bringUp(t, admin)
	newTraffic(t, c.a, c.b).goesOn(t)
	newTraffic(t, c.b, c.a).goesOn(t)
	im, err := p.Import(t.Context(), q.Node(), q.PID(), 1)
	if err != nil {
		t.Fatalf("a process that was there before imports again: %v", err)
	}
	if err := im.Send(t.Context(), make([]byte, 64), 0); err != nil {
		t.Fatal(err)
	}
}

// boundMemory is memory of a process of one node, bound to a buffer on another.
func boundMemory(t *testing.T, from, to *daemon.Node) *vmmc.Binding {
	t.Helper()
	p, q := open(t, from), open(t, to)
	if _, err := q.Export(1, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(t.Context(), q.Node(), q.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	b, err := im.Bind(m.Bytes(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// A link that is made while the node is taken down does not escape.
func TestTakeDownWhileLinksAreMade(t *testing.T) {
	c, ann := administered(t, "")
	admin := asUser(t, c.a.Addr(), ann.ClientTLS("a"))
	a, b := open(t, c.a), open(t, c.b)
	for _, p := range []*vmmc.Process{a, b} {
		if _, err := p.Export(1, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 30 {
		var all sync.WaitGroup
		ims := make([][]*vmmc.Import, 4)
		made := make(chan struct{}, 1)
		for i := range ims {
			from, to := a, b
			if i%2 == 1 {
				from, to = b, a
			}
			all.Go(func() { // until it is refused
				ctx, stop := context.WithTimeout(t.Context(), bound)
				defer stop()
				for range 64 {
					im, err := from.Import(ctx, to.Node(), to.PID(), 1)
					if err != nil {
						if ctx.Err() != nil {
							t.Errorf("an import is neither done nor refused: %v", err)
						}
						return
					}
					ims[i] = append(ims[i], im)
					select {
					case made <- struct{}{}:
					default:
					}
				}
			})
		}
		if round%3 > 0 { // else before the first one
			<-made
		}
		takeDown(t, admin, "")
		all.Wait()
		for _, im := range slices.Concat(ims...) {
			if err := fails(t, im); err != nil {
				check(t, "a link that was made", err, vmmc.ErrPeerGone, "taken down")
			}
		}
		bringUp(t, admin)
	}
}

// A process that does not do as it is told is named.
func TestTakeDownOfSilentProcesses(t *testing.T) {
	c, ann := administered(t, "")
	admin := asUser(t, c.a.Addr(), ann.ClientTLS("a"))
	refuses := newRaw(t, c.a, 1, nil)
	over := make(chan struct{})
	defer close(over)
	sleeps := newRaw(t, c.a, 2, func(ctx context.Context, _ nodeproto.Method, _ []byte,
		fds []int,
	) (any, []int, error) {
		closeAll(fds)
		<-over
		return nil, nil, ctx.Err()
	})
	tr := newTraffic(t, c.a, c.b)
	c.b.Close()
	r := takeDown(t, admin, "")
	if len(r.GetSilent()) != 2 || len(r.GetUntold()) != 1 || r.GetUntold()[0] != "b" {
		t.Errorf("of a, %v; want processes %d and %d as silent, and b as untold", r, refuses.id.PID,
			sleeps.id.PID)
	}
	check(t, "an honest process", fails(t, tr.im), vmmc.ErrPeerGone, "taken down")
}

// Only the node itself can say that it leaves.
func TestLeavingForOthers(t *testing.T) {
	ids, ann := userIdentity(t)
	c := clusterOf(t, ids)
	tr := newTraffic(t, c.a, c.b)
	_, err := client(t, c.b.Addr(), ann.ClientTLS("b")).Leave(t.Context(),
		connect.NewRequest(&nodev1.LeaveRequest{Reason: "x"}))
	check(t, "a user leaves", ownCode(err), code.NoRights)
	if _, err := client(t, c.b.Addr(), ids["c"].ClientTLS("b")).Leave(t.Context(),
		connect.NewRequest(&nodev1.LeaveRequest{Reason: strings.Repeat("x", 2000) + "\xff"})); err == nil {
		t.Error("text that is none was taken") // protobuf refuses it
	}
	if _, err := client(t, c.b.Addr(), ids["c"].ClientTLS("b")).Leave(t.Context(),
		connect.NewRequest(&nodev1.LeaveRequest{Reason: strings.Repeat("x", 20000)})); err != nil {
		t.Error(err)
	}
	tr.goesOn(t)
}

// A node that was taken down is down after a restart.
func TestDownIsKept(t *testing.T) {
	state := t.TempDir()
	c, ann := administered(t, state)
	takeDown(t, asUser(t, c.a.Addr(), ann.ClientTLS("a")), "disk")
	c.a.Close()
	again := func() (*daemon.Node, nodev1connect.ClusterServiceClient) {
		n := startNode(t, daemon.Config{
			Name: "a", Socket: anonymous(), Hosts: c.hosts, Identity: c.ids["a"], Admins: []string{"ann"},
			State: state,
		})
		return n, asUser(t, n.Addr(), ann.ClientTLS("a"))
	}
	n, admin := again()
	p, q := open(t, n), open(t, c.b)
	_, err := p.Import(t.Context(), q.Node(), q.PID(), 1)
	check(t, "after a restart", err, vmmc.ErrUnreachable, "taken down by an administrator: disk")
	bringUp(t, admin)
	newTraffic(t, n, c.b).goesOn(t)
	n.Close()
	n, _ = again()
	newTraffic(t, n, c.b).goesOn(t)
}

// A list of any length comes in pages.
func TestManyNodes(t *testing.T) {
	ids, ann := userIdentity(t)
	var hs []hosts.Host
	for i := range 800 {
		hs = append(hs, hosts.Host{
			Name: fmt.Sprintf("node-with-a-rather-long-name-%d", i), Control: "192.0.2.1:1",
			Data: "192.0.2.1:1",
		})
	}
	addr := freePort(t)
	hs[400] = hosts.Host{Name: "a", Control: addr, Data: addr}
	n := startNode(t, daemon.Config{Name: "a", Socket: anonymous(), Hosts: hs, Identity: ids["a"]})
	cl := asUser(t, n.Addr(), ann.ClientTLS("a"))
	var got []string
	for r := (&nodev1.NodesRequest{}); ; {
		a, err := cl.Nodes(t.Context(), connect.NewRequest(r))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range a.Msg.GetHosts() {
			if got = append(got, h.GetName()); h.GetSelf() != (h.GetName() == "a") {
				t.Errorf("of %q: self %v", h.GetName(), h.GetSelf())
			}
		}
		if !a.Msg.GetMore() {
			break
		}
		r.After = got[len(got)-1]
	}
	for i, h := range hs {
		if i >= len(got) || got[i] != h.Name {
			t.Fatalf("%d nodes, want all %d in order", len(got), len(hs))
		}
	}
	_, err := cl.Nodes(t.Context(), connect.NewRequest(&nodev1.NodesRequest{After: "nobody"}))
	check(t, "after a node that is not there", ownCode(err), code.NoSuchNode)
}

// Looking at the data plane finds out what its port is.
func TestLookAtDataPlanes(t *testing.T) {
	ids, ann := userIdentity(t)
	c := clusterOf(t, ids)
	cl := asUser(t, c.a.Addr(), ann.ClientTLS("a"))
	look := func() *nodev1.Host {
		a, err := cl.Nodes(t.Context(), connect.NewRequest(&nodev1.NodesRequest{
			Look: nodev1.Look_LOOK_DATA,
		}))
		if err != nil {
			t.Fatal(err)
		}
		return a.Msg.GetHosts()[1]
	}
	if h := look(); !h.GetReachable() || h.GetDataRttNs() <= 0 || h.GetDataError() != "" ||
		h.GetFromAddress() == "" || max(h.GetClockAheadNs(), -h.GetClockAheadNs()) > int64(bound) {
		t.Errorf("b is %v", h)
	}
	c.b.Close()
	if h := look(); h.GetReachable() || h.GetDataRttNs() != 0 || !strings.Contains(h.GetDataError(),
		"refused") || h.GetError() == "" || h.GetPing() != nil {
		t.Errorf("b, which has ended, is %v", h)
	}
}

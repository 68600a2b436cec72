//go:build linux

package daemon_test

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// sessionHosts asks a process that has just joined the session on a.
func (c *sessionCluster) sessionHosts(session string) (names []string, err error) {
	c.t.Helper()
	p, err := vmmc.Open(c.t.Context(), vmmc.WithSocket(c.nodes["a"].Socket()),
		vmmc.WithSession(session))
	if err != nil {
		c.t.Fatal(err)
	}
	defer p.Close()
	nodes, err := p.SessionHosts()
	for _, n := range nodes {
		names = append(names, n.String())
	}
	return names, err
}

// A node keeps and tells what the call said that made the session. A call that does not
// say it comes from an older version.
func TestSessionOrigin(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	at := timestamppb.New(time.Date(2026, 11, 1, 2, 3, 4, 5, time.UTC))
	add := func(r *nodev1.AddSessionRequest) error {
		r.Drive, r.Share, r.OutputDirectory = "-", t.TempDir(), "/out"
		_, err := s.AddSession(t.Context(), connect.NewRequest(r))
		return ownCode(err)
	}
	for name, r := range map[string]*nodev1.AddSessionRequest{
		"older":   {Name: "older"},
		"newer":   {Name: "newer", Made: at, Nodes: []string{"b", "a"}},
		"longest": {Name: "longest", Made: at, Nodes: []string{strings.Repeat("n", 32<<10)}},
	} {
		if err := add(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for range 2 {
		for name, want := range map[string]struct {
			made  *timestamppb.Timestamp
			nodes int
		}{"older": {nil, 0}, "newer": {at, 2}, "longest": {at, 1}} {
			o, err := s.SessionOrigin(t.Context(), connect.NewRequest(&nodev1.SessionOriginRequest{
				Session: name,
			}))
			if err != nil {
				t.Fatal(err)
			}
			if (o.Msg.GetMade() == nil) != (want.made == nil) ||
				!o.Msg.GetMade().AsTime().Equal(want.made.AsTime()) || len(o.Msg.GetNodes()) != want.nodes {
				t.Errorf("%s was made at %v on %d nodes, want %v on %d", name, o.Msg.GetMade(),
					len(o.Msg.GetNodes()), want.made, want.nodes)
			}
		}
		c.nodes["a"].Close() // and by the record, once more
		c.start("a")
		s = c.as("user", me(t), "a", nil)
	}
	for name, r := range map[string]*nodev1.AddSessionRequest{
		"no time":        {Made: &timestamppb.Timestamp{Seconds: math.MaxInt64}},
		"too many nodes": {Nodes: []string{strings.Repeat("n", 32<<10), "n"}},
		"empty names":    {Nodes: make([]string, 1000)},
	} {
		r.Name = "refused"
		if err := add(r); !errors.Is(err, code.BadArg) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.SessionOrigin(t.Context(), connect.NewRequest(&nodev1.SessionOriginRequest{
		Session: "refused",
	})); !errors.Is(ownCode(err), code.NoSuchSession) {
		t.Errorf("a session that is not there: %v", err)
	}
}

// A node has the session if the session there is the same user's, also where the user is
// root, who may ask for those of all users. A node that has ended and was listed has it.
func TestSessionNodesAreTheUsers(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "needs root, to make a session for another user")
	c := newSessionCluster(t)
	base, err := os.MkdirTemp("/tmp", "vmmc-base-") // which the other user can reach
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	made := timestamppb.Now()
	add := func(node, user string) {
		t.Helper()
		r := &nodev1.AddSessionRequest{
			Name: "job", User: user, Drive: "-", Share: base, OutputDirectory: "/", Made: made,
			Nodes: []string{"b", "a"},
		}
		if _, err := c.as("user", "root", node, nil).AddSession(t.Context(),
			connect.NewRequest(r)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, nodes ...string) {
		t.Helper()
		if got, err := c.sessionHosts("job"); err != nil || !slices.Equal(got, nodes) {
			t.Errorf("%s: the session's nodes are %v (%v), want %v", what, got, err, nodes)
		}
	}
	add("a", "")
	want("none on b", "a")
	add("b", "")
	want("root's on both", "b", "a")
	if _, err := c.as("user", "root", "b", nil).DeleteSession(t.Context(),
		connect.NewRequest(&nodev1.DeleteSessionRequest{Name: "job"})); err != nil {
		t.Fatal(err)
	}
	want("deleted on b", "a")
	add("b", "nobody")
	want("another user's on b", "a")
	c.nodes["b"].Close()
	want("b has ended", "b", "a")
}

// Processes that ask at once all get the nodes, and so does a process that asks for them
// in several goroutines.
func TestSessionNodesForMany(t *testing.T) {
	c := newSessionCluster(t)
	for _, node := range []string{"b", "a"} {
		c.add(c.as("user", me(t), node, nil), "job", t.TempDir())
	}
	var all sync.WaitGroup
	for range 8 {
		p, err := vmmc.Open(t.Context(), vmmc.WithSocket(c.nodes["a"].Socket()), vmmc.WithSession("job"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 4 {
			all.Go(func() {
				if got, err := p.SessionHosts(); err != nil || len(got) != 2 {
					t.Errorf("%v (%v), want 2 nodes", got, err)
				}
			})
		}
	}
	all.Wait()
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(c.nodes["a"].Socket()), vmmc.WithSession("job"))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := p.SessionHosts(); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("of a closed process: %v", err)
	}
}

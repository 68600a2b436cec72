//go:build linux

package daemon_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// tellsOf passes on the lines of a log that have a message.
type tellsOf struct {
	message string
	lines   chan string
}

func (w *tellsOf) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.message) {
		w.lines <- string(b)
	}
	return len(b), nil
}

// A node tells in its log of another whose list gives it the pids of others, after the
// first import from there.
func TestAnImportComparesTheListsOfNodes(t *testing.T) {
	c := newCluster(t)
	c.a.Close()
	c.b.Close()
	turned := slices.Clone(c.hosts)
	slices.Reverse(turned)
	log := &tellsOf{"logical pids of other nodes", make(chan string, 16)}
	c.a = startNode(t, daemon.Config{
		Name: "a", Socket: anonymous(), Hosts: c.hosts, Identity: c.ids["a"],
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	c.b = c.start(t, "b", turned)
	newTraffic(t, c.a, c.b).goesOn(t)
	if line := <-log.lines; !strings.Contains(line, "node=b") || !strings.Contains(line,
		"in place 1, this node's in place 2") {
		t.Errorf("the log says %s", line)
	}
	newTraffic(t, c.a, c.b).goesOn(t)
	c.a.Close()
	if n := len(log.lines); n > 0 {
		t.Errorf("the log says it %d times more", n)
	}
}

// A node that has no list stands in the first place of one of its own.
func TestANodeWithoutAList(t *testing.T) {
	ids, ann := userIdentity(t)
	alone := startNode(t, daemon.Config{
		Name: "b", Socket: anonymous(), Listen: freePort(t), Identity: ids["b"],
	})
	addr := freePort(t)
	list := []hosts.Host{
		{Name: "a", Control: addr, Data: addr}, {Name: "b", Control: alone.Addr(), Data: alone.Addr()},
	}
	startNode(t, daemon.Config{Name: "a", Socket: anonymous(), Hosts: list, Identity: ids["a"]})
	h := nodesOf(t, asUser(t, addr, ann.ClientTLS("a")))[1]
	if !h.GetHostsConflict() || !strings.Contains(h.GetHostsDiffer(),
		`"b" in place 1, this node's in place 2`) || h.GetPlace() != 2 {
		t.Errorf("b is %v", h)
	}
}

func nodesOf(t *testing.T, cl nodev1connect.ClusterServiceClient) []*nodev1.Host {
	t.Helper()
	a, err := cl.Nodes(t.Context(), connect.NewRequest(&nodev1.NodesRequest{
		Look: nodev1.Look_LOOK_PING,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return a.Msg.GetHosts()
}

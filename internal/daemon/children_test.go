//go:build linux

package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// A user's programs are bounded, and no user takes the room of another.
func TestChildrenOfAUser(t *testing.T) {
	var cs children
	add := func(pid, uid uint32) error {
		c := newChild(order{runAs: users.Account{UID: uid, Name: "ann"}})
		c.pid = pid
		return cs.add(c)
	}
	for i := range uint32(nodeproto.MaxSpawned) {
		if err := add(i+1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(nodeproto.MaxSpawned+1, 1); !errors.Is(err, code.NoMem) {
		t.Errorf("one more: %v", err)
	}
	if err := add(nodeproto.MaxSpawned+2, 2); err != nil {
		t.Errorf("another user's: %v", err)
	}
	if len(cs.byPID) != nodeproto.MaxSpawned+1 || len(cs.byToken) != nodeproto.MaxSpawned+1 {
		t.Errorf("%d pids and %d tokens", len(cs.byPID), len(cs.byToken))
	}
}

// A caller that gives up before it knows of its program has none.
func TestSpawnGivenUp(t *testing.T) {
	n, err := Start(Config{Name: "one", Socket: "@vmmc-test-" + rand.Text()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	o := order{runAs: users.Own(), SpawnRequest: nodeproto.SpawnRequest{
		Path: []byte("/bin/sleep"), Args: [][]byte{[]byte("1000")}, Directory: []byte("/"),
	}}
	for range 8 {
		if _, err := n.children.spawn(ctx, o); !errors.Is(err, code.Timeout) {
			t.Errorf("spawn without time: %v", err)
		}
	}
	running := func() int {
		n.registry.mu.Lock()
		defer n.registry.mu.Unlock()
		return len(n.children.byPID)
	}
	for end := time.Now().Add(30 * time.Second); running() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d programs still run", running())
		}
	}
}

package node_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
)

// A program with a node goes on, and serves other processes, while the files of programs that it is
// asked to spawn do not open: their owner holds leases on them.
func TestSpawnOfFilesThatDoNotOpen(t *testing.T) {
	testutil.Require(t, runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64", "this architecture has no spawn helper")
	dir := t.TempDir()
	program := testutil.CopyProgram(t, "/bin/sleep", dir)
	shell := testutil.CopyProgram(t, "/bin/sh", dir)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!"+shell+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	testutil.Lease(t, program)
	testutil.Lease(t, shell)
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	begun := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	many := 4 * runtime.GOMAXPROCS(0)
	failed := make(chan error, many)
	for i := range many {
		path := program
		if i%2 == 1 {
			path = script
		}
		go func() {
			_, err := p.Spawn(ctx, p.Node(), path, "1000")
			failed <- err
		}()
	}
	for range 20 {
		q, err := vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Spawn(t.Context(), q.Node(), "/bin/true"); err != nil {
			t.Error(err)
		}
		runtime.GC() // which needs each P
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	if d := time.Since(begun); d > 30*time.Second { // the kernel takes a lease away after 45 s
		t.Errorf("20 processes have come, spawned and left within %v", d)
	}
	stop()
	for range many {
		if err := <-failed; err == nil {
			t.Error("it has begun")
		}
	}
}

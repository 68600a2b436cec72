package view_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

// ways are how the data of views travels: on one node, by either path, and between two nodes.
var ways = []string{"mapped", "stream", "between nodes"}

// pair returns two processes, and the options of exports whose importers are to take a way.
func pair(t testing.TB, way string) (importer, exporter *vmmc.Process, opts []vmmc.ExportOption) {
	t.Helper()
	names := []string{"a"}
	switch way {
	case "stream":
		opts = append(opts, vmmc.Unmapped())
	case "between nodes":
		names = append(names, "b")
	}
	ids, err := cert.Ephemeral("test", names...)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := cluster.FreeAddresses(len(names))
	if err != nil {
		t.Fatal(err)
	}
	var hs []hosts.Host
	for i, name := range names {
		hs = append(hs, hosts.Host{Name: name, Control: addrs[i], Data: addrs[i]})
	}
	var sockets []string
	dir := t.TempDir()
	for _, h := range hs {
		n, err := daemon.Start(daemon.Config{Name: h.Name, Socket: filepath.Join(dir, h.Name), Hosts: hs, Identity: ids[h.Name]})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		sockets = append(sockets, n.Socket())
	}
	open := func(socket string) *vmmc.Process {
		p, err := vmmc.Open(context.Background(), vmmc.WithSocket(socket))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	return open(sockets[0]), open(sockets[len(sockets)-1]), opts
}

// within bounds what a test waits for.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), testutil.Slow*time.Minute)
	t.Cleanup(stop)
	return ctx
}

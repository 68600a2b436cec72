package vmmc_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

func open(t *testing.T, n *node.Node) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func start(t *testing.T) *node.Node {
	t.Helper()
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func alloc(t *testing.T, p *vmmc.Process, size int) []byte {
	t.Helper()
	m, err := p.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return m.Bytes()
}

func TestSendGetNotify(t *testing.T) {
	for _, path := range []string{"mapped", "stream"} {
		t.Run(path, func(t *testing.T) {
			n := start(t)
			a, b := open(t, n), open(t, n)
			notes := make(chan vmmc.Notification, 1)
			opts := []vmmc.ExportOption{vmmc.WithHandler(func(n vmmc.Notification) { notes <- n })}
			if path == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			mem := alloc(t, b, 1<<20)
			exp, err := b.Export(7, mem, opts...)
			if err != nil {
				t.Fatal(err)
			}
			im, err := a.Import(t.Context(), b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			if im.Path() != path {
				t.Fatalf("path %s, want %s", im.Path(), path)
			}
			src := bytes.Repeat([]byte{1, 2, 3, 4}, 1000)
			w, err := exp.Word(64 + len(src) - 4)
			if err != nil {
				t.Fatal(err)
			}
			if err := im.Send(t.Context(), src, 64); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Wait(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(mem[64:64+len(src)], src) {
				t.Error("contents differ")
			}
			got := make([]byte, len(src))
			if err := im.Get(t.Context(), got, 64); err != nil || !bytes.Equal(got, src) {
				t.Errorf("get: %v", err)
			}
			if err := im.SendNotify(t.Context(), []byte{9, 0, 0, 0}, 128); err != nil {
				t.Fatal(err)
			}
			select {
			case n := <-notes:
				if n.Offset != 128 || n.Word != 9 || n.Export != exp {
					t.Errorf("notification %+v", n)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no notification")
			}
			if err := im.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
)

func open(t *testing.T, n interface{ Socket() string }) *vmmc.Process {
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
			if im.Path().String() != path {
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

// A process may import its own exports, by either way.
func TestImportOfOnesOwn(t *testing.T) {
	p := open(t, start(t))
	for id, opts := range map[uint32][]vmmc.ExportOption{1: nil, 2: {vmmc.Unmapped()}} {
		ran := make(chan uint32, 1)
		opts = append(opts, vmmc.WithHandler(func(n vmmc.Notification) { ran <- n.Word }))
		mem := alloc(t, p, 4096)
		if _, err := p.Export(id, mem, opts...); err != nil {
			t.Fatal(err)
		}
		im, err := p.Import(t.Context(), p.Node(), p.PID(), id)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := p.Import(t.Context(), p.Node(), p.PID(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := im.SendNotify(t.Context(), []byte{5, 0, 0, 0}, 8); err != nil {
			t.Fatal(err)
		}
		if w := <-ran; w != 5 {
			t.Errorf("handler got %d", w)
		}
		got := make([]byte, 4)
		if err := twice.Get(t.Context(), got, 8); err != nil || got[0] != 5 {
			t.Errorf("%v, %v", got, err)
		}
		if err := im.Close(); err != nil {
			t.Error(err)
		}
		if err := im.Send(t.Context(), got, 0); !errors.Is(err, vmmc.ErrClosed) {
			t.Errorf("send to a closed import: %v", err)
		}
		if err := twice.Send(t.Context(), got, 0); err != nil {
			t.Errorf("the other import of the buffer: %v", err)
		}
	}
}

// Close must not lose what a send reported as delivered, nor let anything in later.
func TestCloseWhileSending(t *testing.T) {
	for _, opts := range [][]vmmc.ExportOption{nil, {vmmc.Unmapped()}} {
		n := start(t)
		a, b := open(t, n), open(t, n)
		for round := range 30 {
			m, err := b.Alloc(64 << 10)
			if err != nil {
				t.Fatal(err)
			}
			e, err := b.Export(uint32(round), m.Bytes(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			im, err := a.Import(t.Context(), b.Node(), b.PID(), uint32(round))
			if err != nil {
				t.Fatal(err)
			}
			sent := make(chan uint32)
			began := make(chan struct{})
			go func() {
				var last uint32
				defer func() { sent <- last }()
				buf := make([]byte, 4096)
				for i := uint32(1); ; i++ {
					binary.LittleEndian.PutUint32(buf[len(buf)-4:], i)
					if err := im.Send(t.Context(), buf, 0); err != nil {
						if !errors.Is(err, vmmc.ErrRevoked) {
							t.Errorf("send to a closed export: %v", err)
						}
						return
					}
					last = i
					if i == 50 {
						close(began)
					}
				}
			}()
			<-began
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			w := binary.LittleEndian.Uint32(m.Bytes()[4092:])
			last := <-sent
			if opts == nil && w < last {
				t.Errorf("message %d was reported as delivered, the memory has %d", last, w)
			}
			if now := binary.LittleEndian.Uint32(m.Bytes()[4092:]); now != w {
				t.Errorf("the memory changed from %d to %d after Close", w, now)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A second Close of an export must not take away the next one of the same id.
func TestCloseTwiceSparesTheSuccessor(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	first, err := b.Export(1, alloc(t, b, 64))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Export(1, alloc(t, b, 128)); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	im, err := a.Import(ctx, b.Node(), b.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if im.Size() != 128 {
		t.Errorf("imported %d bytes, want the second export's", im.Size())
	}
}

// Gets that are refused keep their place among those that are answered.
func TestRefusedGetsKeepTheirOrder(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	if _, err := b.Export(1, alloc(t, b, 1<<20), vmmc.Unmapped()); err != nil {
		t.Fatal(err)
	}
	good, err := a.Import(t.Context(), b.Node(), b.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var gets sync.WaitGroup
	for round := range 20 {
		id := uint32(100 + round)
		e, err := b.Export(id, alloc(t, b, 1<<16), vmmc.Unmapped())
		if err != nil {
			t.Fatal(err)
		}
		bad, err := a.Import(ctx, b.Node(), b.PID(), id)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			gets.Go(func() {
				if err := good.Get(ctx, make([]byte, 1<<20), 0); err != nil {
					t.Errorf("get from an export that lives: %v", err)
				}
			})
			gets.Go(func() {
				if err := bad.Get(ctx, make([]byte, 1<<16), 0); err != nil && !errors.Is(err, vmmc.ErrRevoked) {
					t.Errorf("get from an export that ends: %v", err)
				}
			})
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	gets.Wait()
}

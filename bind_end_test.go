package vmmc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
)

// However the far end goes away, the binding says so, and stores go on.
func TestTheEndOfABinding(t *testing.T) {
	const n = 256 << 10
	ends := map[string]struct {
		do   func(s *buffers) error
		want error
	}{
		"export closed":   {func(s *buffers) error { return s.exp.Close() }, vmmc.ErrRevoked},
		"exporter closed": {func(s *buffers) error { return s.b.Close() }, vmmc.ErrBadIbufState},
		"import closed":   {func(s *buffers) error { return s.im.Close() }, vmmc.ErrClosed},
		"process closed":  {func(s *buffers) error { return s.a.Close() }, vmmc.ErrClosed},
	}
	each := func(t *testing.T, exported func(*testing.T, int) *buffers, opts []vmmc.BindOption) {
		for what, end := range ends {
			t.Run(what, func(t *testing.T) {
				s := exported(t, n)
				endOfABinding(t, s, opts, what, func() error { return end.do(s) }, end.want)
			})
		}
	}
	everyWay(t, each)
	t.Run("alias", func(t *testing.T) {
		each(t, func(t *testing.T, n int) *buffers { return exportedSize(t, "mapped", n) }, []vmmc.BindOption{vmmc.AliasPages()})
	})
}

func endOfABinding(t *testing.T, s *buffers, opts []vmmc.BindOption, what string, end func() error, want error) {
	const n = 256 << 10
	m, err := s.a.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	mem := m.Bytes()
	b, err := s.im.Bind(mem, 0, opts...)
	if err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	if err := b.Err(); err != nil {
		t.Fatalf("it lives, and says %v", err)
	}
	var storing sync.WaitGroup
	stop := make(chan struct{})
	if what != "process closed" { // its memory goes with it
		storing.Go(func() {
			for i := uint32(1); ; i++ {
				select {
				case <-stop:
					return
				default:
					shm.Word(mem, int(i*4099%(n/4))*4).Store(i)
				}
			}
		})
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Done():
	case <-time.After(bound):
		t.Fatal("the binding goes on")
	}
	close(stop)
	storing.Wait()
	for call, f := range map[string]func() error{
		"Flush": func() error { return b.Flush(within(t)) },
		"Store": func() error { return b.Store(within(t), 0, 1) },
		"Err":   b.Err,
	} {
		var e *vmmc.Error
		if err := f(); !errors.Is(err, want) || !errors.As(err, &e) {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
	}
	if what != "process closed" {
		shm.Word(mem, 8).Store(5)
		if shm.Word(mem, 8).Load() != 5 {
			t.Error("a store went nowhere")
		}
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	b.Stats()
	if what == "process closed" {
		return
	}
	if shm.Word(mem, 8).Load() != 5 {
		t.Error("a store was lost when the binding was closed")
	}
	if e, err := s.a.Export(99, mem); err != nil { // the memory is free again
		t.Error(err)
	} else if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// boundRole exports a buffer until it is killed: its arguments are the node's socket
// and the way.
func boundRole() int {
	args := testutil.Args()
	p, err := vmmc.Open(context.Background(), vmmc.WithSocket(args[0]))
	if err != nil {
		return 1
	}
	m, err := p.Alloc(1 << 20)
	if err != nil {
		return 1
	}
	var opts []vmmc.ExportOption
	if args[1] == "stream" {
		opts = append(opts, vmmc.Unmapped())
	}
	if _, err := p.Export(7, m.Bytes(), opts...); err != nil {
		return 1
	}
	fmt.Println(p.PID())
	select {}
}

// The exporter is killed in the middle of it all.
func TestBindingToAKilledProcess(t *testing.T) {
	for _, way := range []string{"mapped", "stream"} {
		t.Run(way, func(t *testing.T) {
			n, err := node.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(n.Close)
			child := testutil.Command(t, "bound", n.Socket(), way)
			var pid vmmc.PID
			testutil.Start(t, child, &pid)
			p := open(t, n)
			im, err := p.Import(within(t), p.Node(), pid, 7)
			if err != nil {
				t.Fatal(err)
			}
			mem := alloc(t, p, 1<<20)
			b := bind(t, im, mem, 0)
			over := make(chan struct{})
			go func() {
				defer close(over)
				for i := uint32(1); ; i++ {
					select {
					case <-b.Done():
						return
					default:
						shm.Word(mem, int(i*4099%(1<<18))*4).Store(i)
					}
				}
			}()
			flush(t, b)
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = child.Wait()
			select {
			case <-over:
			case <-time.After(bound):
				t.Fatal("the binding goes on")
			}
			if err := b.Flush(within(t)); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("%v, want %v", err, vmmc.ErrPeerGone)
			}
		})
	}
}

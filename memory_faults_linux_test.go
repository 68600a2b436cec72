package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// forbid takes a page in the middle of memory away.
func forbid(t testing.TB, b []byte, prot int) {
	t.Helper()
	page := os.Getpagesize()
	at := len(b) / 2 / page * page
	if err := syscall.Mprotect(b[at:at+page], prot); err != nil {
		t.Fatal(err)
	}
}

// reportResumed fails the test unless messages and gets by this import work, and no event was told.
func goesOn(t *testing.T, s *buffers, events <-chan vmmc.Event) {
	t.Helper()
	want := bytes.Repeat([]byte{1, 2, 3, 4}, 256<<10/4)
	got := make([]byte, len(want))
	if err := s.im.Send(within(t), want, 0); err != nil {
		t.Fatalf("another send: %v", err)
	}
	if err := s.im.Get(within(t), got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("another get: %v", err)
	}
	select {
	case e := <-events:
		t.Errorf("%v: %v", e.Kind, e.Err)
	default:
	}
}

// Memory that cannot be read or written is a bad argument of the call that is given it, wherever
// the page is. The link lives, and is not even interrupted; nothing of the message is taken to have
// arrived; others go on.
func TestMemoryThatCannotBeAccessed(t *testing.T) {
	const long = 1 << 20
	for _, way := range []string{"stream", "between nodes", encrypted} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			s := exportedAt(t, near, far, strings.TrimSuffix(way, ", encrypted"), long+4096)
			events := make(chan vmmc.Event, 16)
			s.a = watched(t, s.a, events)
			var err error
			if s.im, err = s.a.Import(t.Context(), s.b.Node(), s.b.PID(), 7); err != nil {
				t.Fatal(err)
			}
			word := func(n int) uint32 { w, _ := s.exp.Word(n - 4); return w.Load() }
			over := func(r vmmc.Request, err error) error {
				if err == nil {
					err = r.Wait(within(t))
				}
				return err
			}
			for _, size := range []int{512, 4096, 64 << 10, 64<<10 + 4, 512 << 10, long} {
				page := os.Getpagesize()
				bad := mmapped(t, max(3, size/page+1), syscall.PROT_READ|syscall.PROT_WRITE)
				from := 0
				if size < 2*page {
					from = len(bad)/2/page*page - size/2&^3 // half of it is in the page
				}
				fill := func() {
					for i := range bad {
						bad[i] = 0xee
					}
				}
				fill()
				src := bad[from : from+size]
				good := bytes.Repeat([]byte{7}, 4096)
				ctx := within(t)
				forbid(t, bad, syscall.PROT_NONE)
				before, signal := word(size), word(size+4)
				for name, f := range map[string]func() error{
					"Send":            func() error { return s.im.Send(ctx, src, 0) },
					"SendNotify":      func() error { return s.im.SendNotify(ctx, src, 0) },
					"SendV":           func() error { return s.im.SendV(ctx, [][]byte{good[:64], src[:size-64]}, 0) },
					"SendSignal":      func() error { return s.im.SendSignal(ctx, src, 0, signal+1, size) },
					"SendAsync":       func() error { return over(s.im.SendAsync(ctx, src, 0)) },
					"SendNotifyAsync": func() error { return over(s.im.SendNotifyAsync(ctx, src, 0)) },
					"WriteAt":         func() error { _, err := s.im.WriteAtContext(ctx, src, 0); return err },
					"Get":             func() error { return s.im.Get(ctx, src, 0) },
					"GetAsync":        func() error { return over(s.im.GetAsync(ctx, src, 0)) },
					"ReadAt":          func() error { _, err := s.im.ReadAtContext(ctx, src, 0); return err },
				} {
					if err := f(); !errors.Is(err, vmmc.ErrBadArg) {
						t.Errorf("%s of %d bytes: %v", name, size, err)
					}
					if name[0] == 'S' && (word(size) != before || word(size+4) != signal) {
						t.Errorf("%s of %d bytes: the last word has arrived", name, size)
					}
				}
				forbid(t, bad, syscall.PROT_READ)
				for name, f := range map[string]func() error{
					"Get":      func() error { return s.im.Get(ctx, src, 0) },
					"GetAsync": func() error { return over(s.im.GetAsync(ctx, src, 0)) },
				} {
					if err := f(); !errors.Is(err, vmmc.ErrBadArg) {
						t.Errorf("%s into %d bytes: %v", name, size, err)
					}
				}
				goesOn(t, s, events)
			}
			// The pages of a file that is shorter than its mapping.
			b, _ := ofFile(t, 100, 256, syscall.PROT_READ|syscall.PROT_WRITE)
			for name, f := range map[string]func() error{
				"Send": func() error { return s.im.Send(within(t), b, 0) },
				"Get":  func() error { return s.im.Get(within(t), b, 0) },
			} {
				if err := f(); !errors.Is(err, vmmc.ErrBadArg) {
					t.Errorf("%s, a file: %v", name, err)
				}
			}
			goesOn(t, s, events)
		})
	}
	t.Run("mapped, asynchronous", func(t *testing.T) {
		s := exportedSize(t, "mapped", long)
		bad := mmapped(t, long/os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE)
		forbid(t, bad, syscall.PROT_NONE)
		for name, begin := range map[string]func(context.Context, []byte, int) (vmmc.Request, error){
			"SendAsync": s.im.SendAsync, "SendNotifyAsync": s.im.SendNotifyAsync, "GetAsync": s.im.GetAsync,
		} {
			r, err := begin(within(t), bad, 0)
			if err == nil {
				err = r.Wait(within(t))
			}
			if !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("%s: %v", name, err)
			}
		}
		goesOn(t, s, nil)
	})
}

// watched is another process of the same node, whose events are told.
func watched(t *testing.T, p *vmmc.Process, events chan<- vmmc.Event) *vmmc.Process {
	t.Helper()
	q, err := vmmc.Open(t.Context(), vmmc.WithSocket(socketOf(p)), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// An export of memory that the program takes back ends with an event, whatever comes for it next,
// and nothing else does.
func TestExportWhoseMemoryIsTakenBack(t *testing.T) {
	// The race detector makes atomic operations in C, on the scheduler's stack: the runtime cannot
	// turn a fault there into a panic.
	testutil.Require(t, !raceEnabled, "faults in atomic operations end a program with the race detector; run it without -race")
	const size = 1 << 20
	page := os.Getpagesize()
	for _, way := range []string{"stream", "between nodes", encrypted} {
		for what, take := range map[string]func(t *testing.T) (b []byte, take func()){
			"made read-only": func(t *testing.T) ([]byte, func()) {
				b := mmapped(t, size/page, syscall.PROT_READ|syscall.PROT_WRITE)
				return b, func() { _ = syscall.Mprotect(b, syscall.PROT_READ) }
			},
			"forbidden": func(t *testing.T) ([]byte, func()) {
				b := mmapped(t, size/page, syscall.PROT_READ|syscall.PROT_WRITE)
				return b, func() { _ = syscall.Mprotect(b, syscall.PROT_NONE) }
			},
			"a file that is shorter now": func(t *testing.T) ([]byte, func()) {
				b, f := ofFile(t, size/page, size/page, syscall.PROT_READ|syscall.PROT_WRITE)
				return b, func() { _ = f.Truncate(0) }
			},
		} {
			for name, call := range map[string]func(ctx context.Context, im *vmmc.Import) error{
				"short send": func(ctx context.Context, im *vmmc.Import) error { return sent(ctx, im, im.Send(ctx, word, 8)) },
				"send": func(ctx context.Context, im *vmmc.Import) error {
					return sent(ctx, im, im.Send(ctx, make([]byte, 4096), 4096))
				},
				"long send": func(ctx context.Context, im *vmmc.Import) error {
					return sent(ctx, im, im.Send(ctx, make([]byte, size), 0))
				},
				"write": func(ctx context.Context, im *vmmc.Import) error {
					_, err := im.WriteAtContext(ctx, word[:3], 1)
					return sent(ctx, im, err)
				},
				"short get": func(ctx context.Context, im *vmmc.Import) error { return im.Get(ctx, make([]byte, 8), 8) },
				"long get":  func(ctx context.Context, im *vmmc.Import) error { return im.Get(ctx, make([]byte, size), 0) },
				"atomic":    func(ctx context.Context, im *vmmc.Import) error { _, err := im.FetchAdd64(ctx, 8, 1); return err },
			} {
				if what == "made read-only" && (name == "short get" || name == "long get") {
					continue // it can be read
				}
				t.Run(way+"/"+what+"/"+name, func(t *testing.T) {
					near, far := nodes(t, way)
					s := exportedAt(t, near, far, strings.TrimSuffix(way, ", encrypted"), size)
					events := make(chan vmmc.Event, 4)
					b := watched(t, s.b, events)
					mem, take := take(t)
					e, err := b.Export(1, mem)
					if err != nil {
						t.Fatal(err)
					}
					im, err := s.a.Import(t.Context(), b.Node(), b.PID(), 1)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := b.Export(2, make([]byte, size)); err != nil {
						t.Fatal(err)
					}
					other, err := s.a.Import(t.Context(), b.Node(), b.PID(), 2)
					if err != nil {
						t.Fatal(err)
					}
					if err := call(within(t), im); err != nil {
						t.Fatal(err)
					}
					take()
					if err := call(within(t), im); !errors.Is(err, vmmc.ErrRevoked) {
						t.Errorf("%v, want %v", err, vmmc.ErrRevoked)
					}
					select {
					case ev := <-events:
						if ev.Kind != vmmc.ExportFault || ev.Export != e || !errors.Is(ev.Err, vmmc.ErrBadArg) {
							t.Errorf("%v of %v: %v", ev.Kind, ev.Export, ev.Err)
						}
					case <-time.After(bound):
						t.Error("no event")
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
					if s := vmmc.ExportState(e); s != "ended" {
						t.Errorf("the export is %s", s)
					}
					s.im = other
					goesOn(t, s, events)
					s.exp, err = b.Export(1, make([]byte, 64))
					if err != nil {
						t.Errorf("the number is taken: %v", err)
					}
				})
			}
		}
	}
}

// sent is the error of a send, also of one that was in the kernel's hands when it returned.
func sent(ctx context.Context, im *vmmc.Import, err error) error {
	if err == nil {
		err = im.Fence(ctx)
	}
	return err
}

// socketOf is where a process has joined its node.
func socketOf(p *vmmc.Process) string {
	_, socket, _ := strings.Cut(p.Environ()[0], "=")
	return socket
}

// The memory of an export is taken back while the kernel has a part of an answer of it, and no room
// for the rest. The link ends on one node, as half of the answer is in flight, and the export ends
// too, with an event: other importers are told.
func TestExportWhoseMemoryIsTakenBackInAnAnswer(t *testing.T) {
	const size = 4 << 20
	w := newVictim(t)
	events := make(chan vmmc.Event, 4)
	b := watched(t, w.b, events)
	mem := mmapped(t, size/os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE)
	e, err := b.Export(1, mem)
	if err != nil {
		t.Fatal(err)
	}
	im, err := join(t, w.socket).Import(t.Context(), b.Node(), b.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	o := newOutlaw(t, w.socket, rand.Uint64(), nil)
	g := o.grab(t, b, 1)
	r := o.attack(t, g.Exporter)
	if err := r.say(t, frame(wire.Header{Type: wire.Get, Handle: g.Handle, Seq: 1, Size: size}, nil)); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, wire.HeaderSize)
	for n, err := 0, error(nil); n == 0; n, err = r.io.Recv(r.fd, first, nil) { // it answers
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mprotect(mem, syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	r.over(t)
	for told := false; !told; {
		select {
		case ev := <-events:
			if ev.Kind == vmmc.PeerGone { // the outlaw, whose link has ended
				continue
			}
			if ev.Kind != vmmc.ExportFault || ev.Export != e || !errors.Is(ev.Err, vmmc.ErrBadArg) {
				t.Errorf("%v of %v: %v", ev.Kind, ev.Export, ev.Err)
			}
			told = true
		case <-time.After(bound):
			t.Fatal("no event")
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := im.Get(within(t), make([]byte, 8), 0); !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("a get of another importer: %v, want %v", err, vmmc.ErrRevoked)
	}
	w.goesOn(t)
}

package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/manual"
	"github.com/vmmc-go/vmmc/node"
)

// bound is how long a test waits for what must happen, and how long all of its work may take. It is
// a guard against hanging: beside other tests some take twenty seconds under the race detector.
const bound = testutil.Slow * time.Minute

// guard fills memory around and in exports; tests fail where it has changed.
const guard = 0xa5

// ways are all the ways that data takes.
var ways = []string{"mapped", "stream", "between nodes"}

// encrypted is that between nodes of which one wants it so.
const encrypted = "between nodes, encrypted"

const size = 8192

// word is what tests send.
var word = []byte{1, 2, 3, 4}

func TestRangesOutsideAnImport(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			for name, f := range transfers(t, s.im) {
				for _, c := range []struct {
					n, off int
					want   error
				}{
					{4, size, vmmc.ErrBadProxyAddr},
					{8, size - 4, vmmc.ErrBadProxyAddr},
					{size + 4, 0, vmmc.ErrBadProxyAddr},
					{4, -4, vmmc.ErrBadProxyAddr},
					{4, math.MinInt, vmmc.ErrBadProxyAddr},
					{4, math.MaxInt - 3, vmmc.ErrBadProxyAddr},
					{8, math.MaxInt &^ 3, vmmc.ErrBadProxyAddr},
					{4, 2, vmmc.ErrBadAlignment},
					{4, size - 5, vmmc.ErrBadAlignment},
					{6, 0, vmmc.ErrBadAlignment},
					{3, 1, vmmc.ErrBadAlignment},
					{0, 0, vmmc.ErrBadSize},
					{0, size, vmmc.ErrBadSize},
				} {
					s.wrong(t, fmt.Sprintf("%s of %d bytes at %d", name, c.n, c.off), f(make([]byte, c.n), c.off), c.want)
				}
			}
			for _, c := range []struct {
				n   int
				off int64
			}{{1, size}, {3, size - 2}, {size + 1, 0}, {1, -1}, {1, math.MinInt64}, {8, math.MaxInt64}} {
				for name, write := range map[string]func([]byte, int64) (int, error){
					"write":                s.im.WriteAt,
					"write with a context": func(b []byte, off int64) (int, error) { return s.im.WriteAtContext(t.Context(), b, int(off)) },
				} {
					n, err := write(make([]byte, c.n), c.off)
					s.wrong(t, fmt.Sprintf("%s of %d bytes at %d", name, c.n, c.off), err, vmmc.ErrBadProxyAddr)
					if n != 0 {
						t.Errorf("%s says that it wrote %d bytes", name, n)
					}
				}
			}
			for _, off := range []int64{-1, math.MinInt64, size + 1, math.MaxInt64} {
				_, err := s.im.ReadAt(make([]byte, 3), off)
				s.wrong(t, fmt.Sprintf("read at %d", off), err, vmmc.ErrBadProxyAddr)
				_, err = s.im.ReadAtContext(t.Context(), make([]byte, 3), int(off))
				s.wrong(t, fmt.Sprintf("read with a context at %d", off), err, vmmc.ErrBadProxyAddr)
			}
			if err := s.im.Fence(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.untouched(t)
		})
	}
}

func TestRights(t *testing.T) {
	for _, way := range ways {
		t.Run(way+"/read-only", func(t *testing.T) {
			s := exported(t, way, vmmc.ReadOnly())
			for name, f := range calls(t, s.im) {
				if strings.HasPrefix(name, "Import.Get") || strings.HasPrefix(name, "Import.Read") {
					continue
				}
				s.wrong(t, name, f(), vmmc.ErrNoRights, vmmc.ErrBadIbufState)
			}
			got := make([]byte, size)
			if err := s.im.Get(t.Context(), got, 0); err != nil || !bytes.Equal(got, s.exp.Bytes()) {
				t.Errorf("get: %v", err)
			}
			if n := s.exp.Notified(); n > 0 {
				t.Errorf("%d notifications arrived", n)
			}
			s.untouched(t)
		})
		t.Run(way+"/write-only", func(t *testing.T) {
			s := exported(t, way, vmmc.WriteOnly())
			got := make([]byte, 8)
			for name, f := range map[string]func() error{
				"get":              func() error { return s.im.Get(t.Context(), got, 0) },
				"read":             func() error { _, err := s.im.ReadAt(got[:3], 1); return err },
				"read to the end":  func() error { _, err := s.im.ReadAt(got, size-4); return err },
				"read at the end":  func() error { _, err := s.im.ReadAt(got, size); return err },
				"read of no bytes": func() error { _, err := s.im.ReadAt(nil, 0); return err },
				"read at all":      func() error { _, err := s.im.ReadAtContext(t.Context(), got[:3], 1); return err },
				"async get":        func() error { _, err := s.im.GetAsync(t.Context(), got, 0); return err },
				"add":              func() error { _, err := s.im.FetchAdd32(t.Context(), 0, 1); return err },
				"swap":             func() error { _, err := s.im.Swap64(t.Context(), 0, 1); return err },
				"compare and swap": func() error { _, _, err := s.im.CompareAndSwap64(t.Context(), 0, 1, 2); return err },
			} {
				s.wrong(t, name, f(), vmmc.ErrNoRights, vmmc.ErrBadIbufState)
			}
			if !bytes.Equal(got, make([]byte, 8)) {
				t.Errorf("a refused get brought %x", got)
			}
			if err := s.im.Send(t.Context(), word, 0); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestClosedImport(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			if err := s.im.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.im.Close(); err != nil {
				t.Errorf("closed twice: %v", err)
			}
			for name, f := range calls(t, s.im) {
				s.wrong(t, name, f(), vmmc.ErrClosed)
			}
			if err := s.im.Fence(t.Context()); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("fence: %v", err)
			}
			again, err := s.a.Import(t.Context(), s.b.Node(), s.b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Fence(t.Context()); err != nil { // all that went before has arrived
				t.Fatal(err)
			}
			s.untouched(t)
		})
	}
}

// TestClosedImportIsOfABadState: ErrBadIbufState says that "more precise codes are also this one".
func TestClosedImportIsOfABadState(t *testing.T) {
	for _, way := range ways {
		s := exported(t, way)
		if err := s.im.Close(); err != nil {
			t.Fatal(err)
		}
		for name, f := range calls(t, s.im) {
			s.wrong(t, name, f(), vmmc.ErrClosed, vmmc.ErrBadIbufState)
		}
	}
}

func TestRevokedImport(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			if err := s.exp.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.exp.Close(); err != nil {
				t.Errorf("closed twice: %v", err)
			}
			for name, f := range calls(t, s.im) {
				// On the stream a send that is in flight may still be reported as sent.
				s.wrong(t, name, eventually(t, f), vmmc.ErrRevoked, vmmc.ErrBadIbufState)
			}
			s.untouched(t)
			if _, err := s.b.Export(7, s.exp.Bytes()); err != nil { // not the same buffer
				t.Fatal(err)
			}
			for name, f := range calls(t, s.im) {
				s.wrong(t, name, f(), vmmc.ErrRevoked)
			}
			s.untouched(t)
		})
	}
}

func TestPeerProcessClosed(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			if err := s.b.Close(); err != nil {
				t.Fatal(err)
			}
			for name, f := range calls(t, s.im) {
				err := eventually(t, f)
				s.wrong(t, name, err, vmmc.ErrBadIbufState)
				// It closed its exports first, and an importer that has learnt of that knows no more.
				if !errors.Is(err, vmmc.ErrPeerGone) && !errors.Is(err, vmmc.ErrRevoked) {
					t.Errorf("%s: %v, want %v or %v", name, err, vmmc.ErrPeerGone, vmmc.ErrRevoked)
				}
			}
			_, err := s.a.Import(t.Context(), s.im.Exporter().Node, s.im.Exporter().PID, 7)
			if !errors.Is(err, vmmc.ErrNoSuchProcess) {
				t.Errorf("import from a process that was closed: %v", err)
			}
		})
	}
}

func TestOwnProcessClosed(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			if err := s.a.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.a.Close(); err != nil {
				t.Errorf("closed twice: %v", err)
			}
			for name, f := range calls(t, s.im) {
				s.wrong(t, name, f(), vmmc.ErrClosed)
			}
			if err := s.im.Close(); err != nil {
				t.Error(err)
			}
			s.untouched(t)
		})
	}
}

func TestOddBytes(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			want := bytes.Clone(s.all)
			at := 0 // of the export in all
			if way != "mapped" {
				at = size
			}
			for _, c := range []struct {
				off int64
				b   string
			}{{0, "a"}, {3, "bcdef"}, {9, "ghi"}, {size - 1, "j"}, {size - 9, "klmnop"}, {17, ""}, {size, ""}} {
				copy(want[at+int(c.off):], c.b)
				if n, err := s.im.WriteAt([]byte(c.b), c.off); n != len(c.b) || err != nil {
					t.Errorf("write %q at %d: %d, %v", c.b, c.off, n, err)
				}
				got := make([]byte, len(c.b))
				if n, err := s.im.ReadAt(got, c.off); n != len(c.b) || err != nil || string(got) != c.b {
					t.Errorf("read %q at %d: %q, %d, %v", c.b, c.off, got, n, err)
				}
			}
			if !bytes.Equal(s.all, want) {
				t.Error("more than what was to be written has changed")
			}
			for _, c := range []struct {
				off  int64
				want int
			}{{size - 5, 5}, {size - 1, 1}, {size, 0}} {
				got := bytes.Repeat([]byte{7}, 9)
				n, err := s.im.ReadAt(got, c.off)
				if n != c.want || !errors.Is(err, io.EOF) || !bytes.Equal(got[:n], s.exp.Bytes()[c.off:]) {
					t.Errorf("read over the end at %d: %q, %d, %v", c.off, got, n, err)
				}
				if !bytes.Equal(got[n:], bytes.Repeat([]byte{7}, 9-n)) {
					t.Errorf("read over the end at %d wrote beyond what it read: %q", c.off, got)
				}
			}
			all, err := io.ReadAll(io.NewSectionReader(s.im, 0, 2*size))
			if err != nil || !bytes.Equal(all, s.exp.Bytes()) {
				t.Errorf("all of it: %d bytes, %v", len(all), err)
			}
		})
	}
}

func TestImportsThatCannotBe(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			if _, err := b.Export(1, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			says := func(what string, err error, parts ...string) {
				t.Helper()
				for _, p := range parts {
					if !strings.Contains(err.Error(), p) {
						t.Errorf("%s: %q does not say %q", what, err, p)
					}
				}
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer stop()
			_, err := a.Import(ctx, b.Node(), b.PID(), 4711)
			if !errors.Is(err, vmmc.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("import of a buffer that is not exported: %v", err)
			}
			says("import of what nobody exports", err, b.ID().String(), "buffer 4711", "nobody exports it")

			var nowhere vmmc.NodeID
			if err := nowhere.UnmarshalText([]byte("nowhere")); err != nil {
				t.Fatal(err)
			}
			_, err = a.Import(t.Context(), nowhere, 1, 1)
			if !errors.Is(err, vmmc.ErrNoSuchNode) {
				t.Errorf("import from an unknown node: %v", err)
			}
			says("import from an unknown node", err, `"nowhere"`, "the nodes are", a.Node().String())
			if _, err := a.Import(t.Context(), vmmc.NodeID{}, 1, 1); !errors.Is(err, vmmc.ErrNoSuchNode) {
				t.Errorf("import from no node: %v", err)
			}
			if _, err := a.NameToNode("nowhere"); !errors.Is(err, vmmc.ErrNoSuchNode) {
				t.Errorf("name of an unknown node: %v", err)
			}
			for _, pid := range []vmmc.PID{0, b.PID() + 100, math.MaxUint32} {
				_, err = a.Import(t.Context(), b.Node(), pid, 1)
				if !errors.Is(err, vmmc.ErrNoSuchProcess) {
					t.Errorf("import from an unknown process: %v", err)
				}
				says("import from an unknown process", err, fmt.Sprint("process ", pid), b.Node().String())
			}
		})
	}
}

func TestExportsThatCannotBe(t *testing.T) {
	n := start(t)
	p := open(t, n)
	mem := alloc(t, p, 4096)
	heap := make([]byte, 64)
	if _, err := p.Export(1, mem[1024:2048]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		id   uint32
		mem  []byte
		want error
		says string
	}{
		{"an id twice", 1, heap, vmmc.ErrBufAlreadyExists, "buffer 1"},
		{"the same memory", 2, mem[1024:2048], vmmc.ErrOverlappedBufs, "buffer 1"},
		{"a part of it", 2, mem[1028:1032], vmmc.ErrOverlappedBufs, "buffer 1"},
		{"its beginning", 2, mem[:1028], vmmc.ErrOverlappedBufs, "buffer 1"},
		{"its end", 2, mem[2044:], vmmc.ErrOverlappedBufs, "buffer 1"},
		{"all of it", 2, mem, vmmc.ErrOverlappedBufs, "buffer 1"},
		{"an odd address", 2, heap[1:61], vmmc.ErrBadAlignment, "buffer 2"},
		{"an odd size", 2, heap[:6], vmmc.ErrBadAlignment, "6 bytes"},
		{"nothing", 2, heap[:0], vmmc.ErrBadSize, "0 bytes"},
		{"nil", 2, nil, vmmc.ErrBadSize, "0 bytes"},
	} {
		_, err := p.Export(c.id, c.mem)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("export of %s: %v, want %v and %q", c.what, err, c.want, c.says)
		}
	}
	for _, m := range [][]byte{mem[:1024], mem[2048:], heap} { // neighbours are no overlap
		e, err := p.Export(2, m)
		if err != nil {
			t.Fatalf("after all these: %v", err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		size int
		want error
	}{{0, vmmc.ErrBadSize}, {-4, vmmc.ErrBadSize}, {6, vmmc.ErrBadAlignment}, {math.MaxInt &^ 3, vmmc.ErrNoMem}, {math.MinInt, vmmc.ErrBadSize}} {
		if m, err := p.Alloc(c.size); !errors.Is(err, c.want) {
			t.Errorf("allocation of %d bytes: %v, %v, want %v", c.size, m, err, c.want)
		}
	}
}

func TestMemoryInUse(t *testing.T) {
	p := open(t, start(t))
	m, err := p.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Export(3, m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); !errors.Is(err, vmmc.ErrBadRbufState) || !strings.Contains(err.Error(), "buffer 3") {
		t.Errorf("freeing exported memory: %v", err)
	}
	for _, c := range []struct {
		off  int
		want error
	}{{-4, vmmc.ErrBadArg}, {64, vmmc.ErrBadArg}, {61, vmmc.ErrBadArg}, {math.MinInt, vmmc.ErrBadArg}, {math.MaxInt, vmmc.ErrBadArg}, {2, vmmc.ErrBadAlignment}} {
		if _, err := e.Word(c.off); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "buffer 3") {
			t.Errorf("word at %d: %v, want %v", c.off, err, c.want)
		}
	}
	w, err := e.Word(60)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := w.Wait(ctx, 0); !errors.Is(err, vmmc.ErrCanceled) || !errors.Is(err, context.Canceled) || errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("wait with a context that has ended: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none.sock")
	t.Setenv(nodeproto.Env, none)
	for name, opts := range map[string][]vmmc.Option{
		"by option": {vmmc.WithSocket(none)}, "by environment": nil,
	} {
		_, err := vmmc.Open(t.Context(), opts...)
		if !errors.Is(err, vmmc.ErrNoDaemon) || !strings.Contains(err.Error(), none) || !strings.Contains(err.Error(), "start vmmcd") {
			t.Errorf("%s: %v, want the path and what to do", name, err)
		}
	}
	long := filepath.Join(dir, strings.Repeat("x", 120))
	_, err := vmmc.Open(t.Context(), vmmc.WithSocket(long))
	if !errors.Is(err, vmmc.ErrBadArg) || !strings.Contains(err.Error(), long) || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a socket path that is too long: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if p, err := vmmc.Open(ctx, vmmc.WithSocket(start(t).Socket())); err == nil {
		p.Close()
		t.Error("joined with a context that had ended")
	}
}

func TestEmbeddedNodeTwiceAtOneSocket(t *testing.T) {
	t.Setenv(nodeproto.Env, "")
	path := filepath.Join(t.TempDir(), "s")
	p, err := vmmc.Open(t.Context(), node.Embed(node.WithSocket(path)))
	if err != nil {
		t.Fatal(err)
	}
	if q, err := vmmc.Open(t.Context(), node.Embed(node.WithSocket(path))); err == nil {
		q.Close()
		t.Error("two nodes at one socket")
	} else if !strings.Contains(err.Error(), path) {
		t.Errorf("%v does not name the socket", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	q, err := vmmc.Open(t.Context(), node.Embed(node.WithSocket(path)))
	if err != nil {
		t.Fatalf("after the first has gone: %v", err)
	}
	q.Close()
}

// The daemon's end leaves established imports alone. Calls that need the daemon fail and
// say why.
func TestDaemonGone(t *testing.T) {
	for _, path := range []string{"mapped", "stream"} {
		n, err := node.Start()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		a, b := join(t, n.Socket()), join(t, n.Socket())
		var opts []vmmc.ExportOption
		if path == "stream" {
			opts = append(opts, vmmc.Unmapped())
		}
		if _, err := b.Export(7, alloc(t, b, 64), opts...); err != nil {
			t.Fatal(err)
		}
		im, err := a.Import(t.Context(), b.Node(), b.PID(), 7)
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
		got := make([]byte, 4)
		if err := im.Send(t.Context(), word, 0); err != nil {
			t.Error(err)
		}
		if err := im.Get(t.Context(), got, 0); err != nil || !bytes.Equal(got, word) {
			t.Errorf("%x, %v", got, err)
		}
		_, err = a.Import(t.Context(), b.Node(), b.PID(), 7)
		if !errors.Is(err, vmmc.ErrNoDaemon) {
			t.Errorf("import: %v, want %v", err, vmmc.ErrNoDaemon)
		}
		if _, err := a.Export(1, make([]byte, 4)); !errors.Is(err, vmmc.ErrNoDaemon) {
			t.Errorf("export: %v, want %v", err, vmmc.ErrNoDaemon)
		}
	}
}

// An export can be closed without the daemon, which has nothing to forget.
func TestCloseExportWithoutDaemon(t *testing.T) {
	for range 20 {
		n, err := node.Start()
		if err != nil {
			t.Fatal(err)
		}
		p := join(t, n.Socket())
		e, err := p.Export(7, alloc(t, p, 64))
		if err != nil {
			t.Fatal(err)
		}
		n.Close()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A context that has ended: a long send stops, and its error says both that its time was
// over and that it is unknown how much of it has arrived.
func TestLongSendWithoutTime(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			var opts []vmmc.ExportOption
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			mem := alloc(t, b, 16<<20)
			if _, err := b.Export(7, mem, opts...); err != nil {
				t.Fatal(err)
			}
			im, err := a.Import(t.Context(), b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			stop()
			// The engine may be so quick that a send never has to wait.
			err = eventually(t, func() error { return im.Send(ctx, make([]byte, len(mem)), 0) })
			if !errors.Is(err, vmmc.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			if !errors.Is(err, vmmc.ErrCanceled) || errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("%v is not %v, or it is %v", err, vmmc.ErrCanceled, vmmc.ErrTimeout)
			}
			if err := im.Send(t.Context(), word, 0); err != nil {
				t.Errorf("the next send: %v", err)
			}
		})
	}
}

// An error that has no code is ErrUnknown and itself, and no fault of the caller's.
func TestErrorsWithoutACode(t *testing.T) {
	why := errors.New("the start has failed")
	_, err := vmmc.Open(t.Context(), vmmc.WithEmbedded(func(context.Context) (string, func(), error) { return "", nil, why }))
	var c vmmc.Code
	if !errors.Is(err, vmmc.ErrUnknown) || !errors.Is(err, why) || errors.Is(err, vmmc.ErrBadArg) || !errors.As(err, &c) || c != vmmc.ErrUnknown {
		t.Errorf("%v", err)
	}
}

// A cancelled context is ErrCanceled and context.Canceled, also where the program gave a cause; one
// whose time is up is ErrTimeout and context.DeadlineExceeded.
func TestContextErrors(t *testing.T) {
	if err := error(&vmmc.Error{Code: vmmc.ErrTimeout}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%v, as a daemon finds it", err)
	}
	s := exportedSize(t, "mapped", 1<<20)
	w, err := s.exp.Word(0)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the program's reason")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	wrapped, cancelWrapped := context.WithCancelCause(t.Context())
	cancelWrapped(fmt.Errorf("%w: %w", cause, context.Canceled))
	late, stop := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), cause)
	defer stop()
	for name, call := range map[string]func(context.Context) error{
		"Wait":      func(ctx context.Context) error { _, err := w.Wait(ctx, w.Load()); return err },
		"WaitUntil": func(ctx context.Context) error { return s.b.WaitUntil(ctx, func() bool { return false }) },
		"Send": func(ctx context.Context) error {
			return s.im.Send(ctx, make([]byte, s.im.Size()), 0) // more than a piece
		},
		"ImportRequest.Wait": func(ctx context.Context) error {
			r := manual.ImportAsync(t.Context(), s.a, s.b.Node(), s.b.PID(), 99)
			defer r.Cancel()
			_, err := r.Wait(ctx)
			return err
		},
	} {
		for _, c := range []struct {
			ctx       context.Context
			code, not vmmc.Code
			is        error
		}{
			{cancelled, vmmc.ErrCanceled, vmmc.ErrTimeout, context.Canceled},
			{wrapped, vmmc.ErrCanceled, vmmc.ErrTimeout, context.Canceled},
			{late, vmmc.ErrTimeout, vmmc.ErrCanceled, context.DeadlineExceeded},
		} {
			err := call(c.ctx)
			if !errors.Is(err, c.code) || errors.Is(err, c.not) || !errors.Is(err, c.is) || !errors.Is(err, cause) {
				t.Errorf("%s: %v, want %v and %v", name, err, c.code, c.is)
			}
		}
	}
}

// A context that ends while an import waits is told as what it is, with the program's cause.
func TestContextErrorsOfWaitingImports(t *testing.T) {
	s := exportedSize(t, "mapped", 4096)
	cause := errors.New("the program's reason")
	const soon = 20 * time.Millisecond
	cancelled, cancel := context.WithCancelCause(t.Context())
	defer time.AfterFunc(soon, func() { cancel(cause) }).Stop()
	_, err := s.a.Import(cancelled, s.b.Node(), s.b.PID(), 99)
	if !errors.Is(err, vmmc.ErrCanceled) || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) || errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("cancelled: %v", err)
	}
	late, stop := context.WithTimeoutCause(t.Context(), soon, cause)
	defer stop()
	_, err = s.a.Import(late, s.b.Node(), s.b.PID(), 99)
	if !errors.Is(err, vmmc.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) || errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("late: %v", err)
	}
	if _, err := vmmc.Open(cancelled); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("open: %v", err)
	}
}

// Imports that wait when their process closes fail with that.
func TestImportsOfAProcessThatCloses(t *testing.T) {
	defer vmmc.SetImportWaits(time.Millisecond)()
	near, far := nodes(t, "mapped")
	lines := &logLines{came: make(chan struct{}, 1)}
	p := join(t, near, vmmc.WithLogger(slog.New(slog.NewTextHandler(lines, nil))))
	q := join(t, far)
	r := manual.ImportAsync(t.Context(), p, q.Node(), q.PID(), 99)
	waits := make(chan error, 1)
	go func() {
		_, err := p.Import(t.Context(), q.Node(), q.PID(), 98)
		waits <- err
	}()
	for log := ""; !strings.Contains(log, "buffer=98") || !strings.Contains(log, "buffer=99"); log = lines.String() {
		select {
		case <-lines.came:
		case <-within(t).Done():
			t.Fatalf("the imports do not both wait: %s", lines)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); !errors.Is(err, vmmc.ErrClosed) || errors.Is(err, context.Canceled) {
		t.Errorf("asynchronous: %v", err)
	}
	if err := <-waits; !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("synchronous: %v", err)
	}
}

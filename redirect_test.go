package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// pattern is n bytes whose words are all different, and none is 0. No other goroutine has them yet, so the
// race detector need not look at each byte: it takes longer than a message of them.
//
//go:norace
func pattern(n int, salt uint32) []byte {
	b := make([]byte, 0, n)
	for i := range n / 4 {
		b = binary.LittleEndian.AppendUint32(b, uint32(i+1)*2654435761+salt)
	}
	return b
}

// notNamed follows a way whose target is memory that was not named at the export.
const notNamed = ", target not named"

// redirWays are all ways, each with both kinds of targets.
var redirWays = func() (all []string) {
	for _, way := range ways {
		all = append(all, way, way+notNamed)
	}
	return all
}()

// redirected is an export that can be redirected on a way, and a target.
func redirected(t *testing.T, way string, size int, opts ...vmmc.ExportOption) (s *buffers, target []byte) {
	t.Helper()
	way, other := strings.CutSuffix(way, notNamed)
	near, far := nodes(t, way)
	s = &buffers{a: join(t, near), b: join(t, far)}
	m, err := s.b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	if other {
		opts = append(opts, vmmc.Redirectable())
	} else {
		opts = append(opts, vmmc.Redirectable(m))
	}
	if way != "mapped" {
		opts = append(opts, vmmc.Unmapped())
	}
	s.all = alloc(t, s.b, size)
	if s.exp, err = s.b.Export(7, s.all, opts...); err != nil {
		t.Fatal(err)
	}
	if s.im, err = s.a.Import(t.Context(), s.b.Node(), s.b.PID(), 7); err != nil {
		t.Fatal(err)
	}
	if want := way == "mapped"; (s.im.Path() == vmmc.PathMapped) != want {
		t.Fatalf("the path is %s on the way %q", s.im.Path(), way)
	}
	return s, m.Bytes()
}

// What is begun and not waited for is redirected, too, however long it is.
func TestRedirectedRequests(t *testing.T) {
	const size = 8 << 20
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			for _, n := range []int{4, 64 << 10, 128 << 10, 1 << 20, 6 << 20} {
				s, target := redirected(t, way, size)
				if err := s.exp.PostRedir(target[:n], 0); err != nil {
					t.Fatal(err)
				}
				src := pattern(n, uint32(n))
				r, err := s.im.SendAsync(t.Context(), src, 0)
				if err == nil {
					err = r.Wait(within(t))
				}
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(target[:n], src) || !bytes.Equal(s.all[:n], make([]byte, n)) {
					t.Errorf("%d bytes did not come to where they were redirected", n)
				}
			}
		})
	}
}

// Every boundary word: a message of three chunks, and a range that begins and
// ends before the first word, at it, after it, around the bounds of chunks and
// in their middle, at the last word and after it.
func TestRedirectionAtEveryBoundary(t *testing.T) {
	const (
		piece = 16 << 10  // what the mapped way copies at a time
		chunk = 256 << 10 // what the stream sends at a time
		total = 3*chunk + 64
		from  = 32 // the message lies in the buffer with room on both sides
		size  = total - 64
	)
	marks := []int{0, from - 4, from, from + 4}
	for _, at := range []int{piece, chunk, chunk + chunk/2, 2 * chunk} {
		marks = append(marks, from+at-4, from+at, from+at+4)
	}
	marks = append(marks, from+size-8, from+size-4, from+size, from+size+4, total)
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			s, target := redirected(t, way, total)
			ctx := within(t)
			all := pattern(total+4*1000, 1)
			salt := 0
			for i, lo := range marks {
				for _, hi := range marks[i+1:] {
					salt++
					src := all[4*salt : 4*salt+size] // another one each time
					clear(s.all)
					clear(target)
					to := target[:hi-lo]
					if err := s.exp.PostRedir(to, lo); err != nil {
						t.Fatal(err)
					}
					if err := s.im.Send(ctx, src, from); err != nil {
						t.Fatal(err)
					}
					if err := s.im.Fence(ctx); err != nil {
						t.Fatal(err)
					}
					n, first, err := s.exp.EndRedir(ctx)
					if err != nil {
						t.Fatal(err)
					}
					begin, end := max(lo, from), min(hi, from+size)
					want := max(0, end-begin)
					if n != want || n > 0 && first != begin-lo {
						t.Fatalf("range [%d, %d), message [%d, %d): %d bytes at %d, want %d at %d", lo, hi, from, from+size, n, first, want, begin-lo)
					}
					buffer, user := make([]byte, total), make([]byte, hi-lo)
					copy(buffer[from:], src)
					if want > 0 {
						clear(buffer[begin:end])
						copy(user[begin-lo:], src[begin-from:end-from])
					}
					if !bytes.Equal(s.all, buffer) {
						t.Fatalf("range [%d, %d): the buffer differs", lo, hi)
					}
					if !bytes.Equal(to, user) {
						t.Fatalf("range [%d, %d): the target differs", lo, hi)
					}
					if off, ok := s.exp.DataEnd(); !ok || off != from+size-4 {
						t.Fatalf("data end %d, %v", off, ok)
					}
				}
			}
		})
	}
}

// A redirection is for one message, whatever is posted before, during or after
// its arrival, and its figures say where each word is.
func TestRedirectionWhileAMessageArrives(t *testing.T) {
	const size = 8 << 20
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			s, target := redirected(t, way, size)
			last, err := s.exp.Word(size - 4)
			if err != nil {
				t.Fatal(err)
			}
			lastOfTarget := shm.Word(target, size-4)
			var late, early int // posted after the first word, ended before the last
			for round := range 60 {
				ctx := within(t)
				src := pattern(size, uint32(round)<<8)
				clear(s.all)
				clear(target)
				sent := make(chan error, 1)
				go func() { sent <- s.im.Send(ctx, src, 0) }()
				// Where its last word arrives nothing follows it.
				over := func() bool { return last.Load() != 0 || lastOfTarget.Load() != 0 }
				seen(ctx, s.all, round%12*(size/12)/4*4, over) // so far it has arrived
				if err := s.exp.PostRedir(target, 0); err != nil {
					t.Fatal(err)
				}
				if round%2 == 1 { // and end it while the message arrives, perhaps
					seen(ctx, target, min(size-4, round%12*(size/12)/4*4+(round%7+1)*(size/24)/4*4), over)
				} else if err := <-sent; err != nil {
					t.Fatal(err)
				}
				n, first, err := s.exp.EndRedir(ctx)
				if err != nil {
					t.Fatal(err)
				}
				kept := bytes.Clone(target)
				if round%2 == 1 {
					if err := <-sent; err != nil {
						t.Fatal(err)
					}
				}
				if err := s.im.Fence(ctx); err != nil {
					t.Fatal(err)
				}
				if n > 0 && first > 0 {
					late++
				}
				if n > 0 && first+n < size {
					early++
				}
				if !bytes.Equal(target, kept) {
					t.Fatalf("round %d: the target was written after the redirection's end", round)
				}
				if !bytes.Equal(target[first:first+n], src[first:first+n]) {
					t.Fatalf("round %d: %d bytes at %d are not the message's", round, n, first)
				}
				copy(s.all[first:first+n], target[first:first+n]) // as the receiver does
				if !bytes.Equal(s.all, src) {
					t.Fatalf("round %d: with %d redirected bytes at %d the message is not whole", round, n, first)
				}
				last.Store(0)
			}
			t.Logf("of 60 messages %d were redirected from their middle on, %d not to their end", late, early)
			if late == 0 {
				t.Error("no redirection was posted while a message arrived")
			}
		})
	}
}

// seen looks for a while whether the word at off is not 0 any more, or it is over.
func seen(ctx context.Context, mem []byte, off int, over func() bool) {
	w := shm.Word(mem, off)
	for i := 0; w.Load() == 0 && i < 1e6 && !over() && ctx.Err() == nil; i++ {
		if i%100 == 99 {
			runtime.Gosched() // the message comes by goroutines of this program
		}
	}
}

func TestRedirectionRules(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			s, target := redirected(t, way, size)
			ctx := within(t)
			plain, err := s.b.Export(8, alloc(t, s.b, size))
			if err != nil {
				t.Fatal(err)
			}
			odd := target[1 : size-3]
			for what, c := range map[string]struct {
				err  error
				want error
			}{
				"not redirectable":      {plain.PostRedir(target, 0), vmmc.ErrNotRedirectable},
				"nothing":               {s.exp.PostRedir(nil, 0), vmmc.ErrBadSize},
				"odd offset":            {s.exp.PostRedir(target[:4], 2), vmmc.ErrBadAlignment},
				"odd size":              {s.exp.PostRedir(target[:6], 0), vmmc.ErrBadAlignment},
				"odd memory":            {s.exp.PostRedir(odd, 0), vmmc.ErrBadAlignment},
				"over the end":          {s.exp.PostRedir(target, 4), vmmc.ErrBadArg},
				"before the beginning":  {s.exp.PostRedir(target, -4), vmmc.ErrBadArg},
				"into the buffer":       {s.exp.PostRedir(s.all[:8], 0), vmmc.ErrOverlappedBufs},
				"into another export":   {s.exp.PostRedir(plain.Bytes(), 0), vmmc.ErrOverlappedBufs},
				"ended before":          {end(s.exp), vmmc.ErrBadRbufState},
				"of a buffer without":   {end(plain), vmmc.ErrNotRedirectable},
				"both are of its state": {plain.PostRedir(target, 0), vmmc.ErrBadRbufState},
			} {
				if !errors.Is(c.err, c.want) {
					t.Errorf("%s: %v, want %v", what, c.err, c.want)
				}
			}
			if _, ok := s.exp.DataEnd(); ok {
				t.Error("an end of data before there was any")
			}
			if err := s.exp.PostRedir(target[:16], 8); err != nil {
				t.Fatal(err)
			}
			if err := s.exp.PostRedir(target[:16], 8); !errors.Is(err, vmmc.ErrBadRbufState) {
				t.Errorf("posted twice: %v", err)
			}
			// What does not touch the range leaves it posted; the first that does ends it.
			for _, m := range []struct {
				off int
				v   uint32
			}{{0, 1}, {24, 2}, {12, 3}, {12, 4}, {8, 5}} {
				if err := s.im.Send(ctx, w32(m.v), m.off); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.im.WriteAt([]byte{9}, 16); err != nil {
				t.Fatal(err)
			}
			if err := s.im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			n, first, err := s.exp.EndRedir(ctx)
			if err != nil || n != 4 || first != 4 {
				t.Errorf("%d bytes at %d, %v; want 4 at 4", n, first, err)
			}
			want := bytes.Join([][]byte{w32(1), w32(0), w32(5), w32(4), {9, 0, 0, 0}, w32(0), w32(2)}, nil)
			if !bytes.Equal(s.all[:28], want) || !bytes.Equal(target[:16], append(append(w32(0), w32(3)...), make([]byte, 8)...)) {
				t.Errorf("buffer %x\ntarget %x", s.all[:28], target[:16])
			}
			if off, ok := s.exp.DataEnd(); !ok || off != 8 {
				t.Errorf("data end %d, %v; want 8", off, ok)
			}
			s.exp.ClearDataEnd()
			if _, ok := s.exp.DataEnd(); ok {
				t.Error("an end of data after it was cleared")
			}
			if err := s.exp.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.exp.PostRedir(target, 0); !errors.Is(err, vmmc.ErrBadRbufState) {
				t.Errorf("posted for a closed export: %v", err)
			}
		})
	}
}

func end(e *vmmc.Export) error {
	_, _, err := e.EndRedir(context.Background())
	return err
}

// A handler finds the last word where it truly lies.
func TestRedirectedNotification(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			notes := make(chan vmmc.Notification, 4)
			s, target := redirected(t, way, size, vmmc.WithHandler(func(n vmmc.Notification) { notes <- n }))
			ctx := within(t)
			if err := s.exp.PostRedir(target[:64], 0); err != nil {
				t.Fatal(err)
			}
			for i, want := range [][]byte{target[8:12], s.all[8:12]} {
				if err := s.im.SendNotify(ctx, pattern(12, uint32(i)), 0); err != nil {
					t.Fatal(err)
				}
				select {
				case n := <-notes:
					if n.Offset != 8 || &n.At[0] != &want[0] || binary.LittleEndian.Uint32(n.At) != n.Word {
						t.Errorf("message %d: offset %d, at %p, want 8 at %p", i, n.Offset, n.At, want)
					}
				case <-ctx.Done():
					t.Fatal("no notification")
				}
			}
		})
	}
}

// One process by default; more by the exporter's word, and then the stream
// redirects whose message comes first.
func TestWhoMayImportARedirectableBuffer(t *testing.T) {
	n := start(t)
	a, b, c := open(t, n), open(t, n), open(t, n)
	ctx := within(t)
	mem := alloc(t, b, size)
	exp, err := b.Export(7, mem, vmmc.Redirectable())
	if err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Import(ctx, b.Node(), b.PID(), 7); err != nil {
		t.Errorf("the same process again: %v", err)
	}
	if _, err := c.Import(ctx, b.Node(), b.PID(), 7); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("a second process: %v", err)
	}
	heap := make([]byte, 64)
	if err := exp.PostRedir(heap, 0); err != nil {
		t.Fatal(err)
	}
	if err := im.Send(ctx, pattern(64, 1), 0); err != nil {
		t.Fatal(err)
	}
	if n, first, err := exp.EndRedir(ctx); n != 64 || first != 0 || err != nil ||
		!bytes.Equal(heap, pattern(64, 1)) || !bytes.Equal(mem[:64], make([]byte, 64)) {
		t.Errorf("%d bytes at %d redirected to memory that no importer knows: %v", n, first, err)
	}
	many, err := b.Export(8, alloc(t, b, size), vmmc.Redirectable(), vmmc.ManySenders())
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*vmmc.Process{a, c} {
		im, err := p.Import(ctx, b.Node(), b.PID(), 8)
		if err != nil {
			t.Fatal(err)
		}
		if err := many.PostRedir(heap, 0); err != nil {
			t.Fatal(err)
		}
		src := pattern(64, uint32(i))
		if err := im.Send(ctx, src, 0); err != nil {
			t.Fatal(err)
		}
		if err := im.Fence(ctx); err != nil {
			t.Fatal(err)
		}
		if n, first, err := many.EndRedir(ctx); n != 64 || first != 0 || err != nil || !bytes.Equal(heap, src) {
			t.Errorf("%d bytes at %d, %v", n, first, err)
		}
	}
}

// What a redirection needs goes with the importer or the export, and the next
// one gets its own.
func TestRedirectionOfSuccessors(t *testing.T) {
	for _, way := range redirWays[:4] { // on one node
		t.Run(way, func(t *testing.T) {
			n := start(t)
			b := open(t, n)
			ctx := within(t)
			m, err := b.Alloc(size)
			if err != nil {
				t.Fatal(err)
			}
			mem, target := alloc(t, b, size), m.Bytes()
			way, other := strings.CutSuffix(way, notNamed)
			opts := []vmmc.ExportOption{vmmc.Redirectable(m)}
			if other {
				opts = []vmmc.ExportOption{vmmc.Redirectable()}
			}
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			for e := range 3 {
				exp, err := b.Export(7, mem, opts...)
				if err != nil {
					t.Fatal(err)
				}
				if !other {
					if err := m.Close(); !errors.Is(err, vmmc.ErrBadRbufState) {
						t.Errorf("a target was freed: %v", err)
					}
				}
				for i := range 3 {
					a := open(t, n)
					var im *vmmc.Import
					for im == nil { // until the exporter has heard of the end of the one before
						if im, err = a.Import(ctx, b.Node(), b.PID(), 7); err != nil && !errors.Is(err, vmmc.ErrNoRights) {
							t.Fatal(err)
						}
					}
					for k := range 3 {
						src := pattern(64, uint32(e<<16|i<<8|k))
						if err := exp.PostRedir(target[:64], 0); err != nil {
							t.Fatal(err)
						}
						if err := im.Send(ctx, src, 0); err != nil {
							t.Fatal(err)
						}
						if err := im.Fence(ctx); err != nil {
							t.Fatal(err)
						}
						if n, first, err := exp.EndRedir(ctx); n != 64 || first != 0 || err != nil || !bytes.Equal(target[:64], src) {
							t.Fatalf("export %d, importer %d, message %d: %d bytes at %d, %v", e, i, k, n, first, err)
						}
						if err := im.Close(); err != nil {
							t.Fatal(err)
						}
						if im, err = a.Import(ctx, b.Node(), b.PID(), 7); err != nil {
							t.Fatal(err)
						}
					}
					if err := a.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if err := exp.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An export can have many targets, each of which a mapped importer is redirected
// to; one too many is refused, and harms nothing.
func TestManyRedirectionTargets(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	ctx := within(t)
	targets := make([]*vmmc.Memory, 30)
	for i := range targets {
		var err error
		if targets[i], err = b.Alloc(64); err != nil {
			t.Fatal(err)
		}
	}
	mem := alloc(t, b, 64)
	if _, err := b.Export(7, mem, vmmc.Redirectable(targets...)); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("%d targets: %v, want %v", len(targets), err, vmmc.ErrBadArg)
	}
	exp, err := b.Export(7, mem, vmmc.Redirectable(targets[1:]...))
	if err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if im.Path() != vmmc.PathMapped {
		t.Errorf("the path is %s", im.Path())
	}
	for i, m := range targets[1:] {
		src := pattern(64, uint32(i))
		if err := exp.PostRedir(m.Bytes(), 0); err != nil {
			t.Fatal(err)
		}
		if err := im.Send(ctx, src, 0); err != nil {
			t.Fatal(err)
		}
		if n, first, err := exp.EndRedir(ctx); n != 64 || first != 0 || err != nil || !bytes.Equal(m.Bytes(), src) {
			t.Fatalf("target %d: %d bytes at %d, %v", i, n, first, err)
		}
	}
}

// The targets of an export are those that it was given, whatever becomes of the slice that they
// came in.
func TestTargetsOfASliceThatIsUsedAgain(t *testing.T) {
	p := open(t, start(t))
	var given [1]*vmmc.Memory
	var memories [2]*vmmc.Memory
	var exports [2]*vmmc.Export
	for i := range memories {
		var err error
		if memories[i], err = p.Alloc(64); err != nil {
			t.Fatal(err)
		}
		given[0] = memories[i]
		if exports[i], err = p.Export(uint32(i), alloc(t, p, 64), vmmc.Redirectable(given[:]...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := exports[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := memories[1].Close(); !errors.Is(err, vmmc.ErrBadRbufState) {
		t.Errorf("a target of an export that lives was given back: %v", err)
	}
	if err := memories[0].Close(); err != nil {
		t.Errorf("what was a target of an export that is closed cannot be given back: %v", err)
	}
}

// Pages of a target that have moved are not what importers would map: then they
// use the stream.
func TestRedirectionToMovedPages(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	ctx := within(t)
	page := vmmc.PageSize()
	m, err := b.Alloc(2 * page)
	if err != nil {
		t.Fatal(err)
	}
	part, err := b.Export(6, m.Bytes()[:page], vmmc.SharePages())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Import(ctx, b.Node(), b.PID(), 6); err != nil {
		t.Fatal(err)
	}
	if err := part.Close(); err != nil {
		t.Fatal(err)
	}
	exp, err := b.Export(7, alloc(t, b, 2*page), vmmc.Redirectable(m))
	if err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := exp.PostRedir(m.Bytes(), 0); err != nil {
		t.Fatal(err)
	}
	src := pattern(2*page, 1)
	if err := im.Send(ctx, src, 0); err != nil {
		t.Fatal(err)
	}
	if err := im.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	if n, first, err := exp.EndRedir(ctx); n != 2*page || first != 0 || err != nil || !bytes.Equal(m.Bytes(), src) {
		t.Errorf("%d bytes at %d, %v; the target has them: %v", n, first, err, bytes.Equal(m.Bytes(), src))
	}
}

// What an importer has redirected stays its own when it ends: the next one's
// messages go to the buffer.
func TestRedirectedByAPredecessor(t *testing.T) {
	for _, successor := range []string{"on the same node", "on another node"} {
		t.Run(successor, func(t *testing.T) {
			redirectedByAPredecessor(t, successor == "on another node")
		})
	}
}

func redirectedByAPredecessor(t *testing.T, elsewhere bool) {
	far, near := nodes(t, "between nodes")
	a, b := join(t, near), join(t, near)
	if !elsewhere {
		far = near
	}
	c := join(t, far)
	ctx := within(t)
	m, err := b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	all, target := alloc(t, b, size), m.Bytes()
	exp, err := b.Export(7, all, vmmc.Redirectable(m))
	if err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := exp.PostRedir(target, 0); err != nil {
		t.Fatal(err)
	}
	first, second := pattern(64, 1), pattern(64, 2)
	if err := im.Send(ctx, first, 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for im = nil; im == nil; { // until the exporter has heard of the end
		if im, err = c.Import(ctx, b.Node(), b.PID(), 7); err != nil && !errors.Is(err, vmmc.ErrNoRights) {
			t.Fatal(err)
		}
	}
	if err := im.Send(ctx, second, 0); err != nil {
		t.Fatal(err)
	}
	if err := im.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	if n, at, err := exp.EndRedir(ctx); n != 64 || at != 0 || err != nil {
		t.Errorf("%d bytes at %d: %v", n, at, err)
	}
	if !bytes.Equal(target[:64], first) || !bytes.Equal(all[:64], second) {
		t.Error("the second importer's message was redirected")
	}
	if err := exp.PostRedir(target, 0); err != nil {
		t.Fatal(err)
	}
	if err := im.Send(ctx, second, 0); err != nil {
		t.Fatal(err)
	}
	if err := im.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	if n, _, err := exp.EndRedir(ctx); n != 64 || err != nil || !bytes.Equal(target[:64], second) {
		t.Errorf("the next redirection: %d bytes, %v", n, err)
	}
}

// An importer that comes and goes keeps nothing of the exports that it had.
func TestRedirectionPagesAreGivenBack(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	ctx := within(t)
	if _, err := b.Export(1, alloc(t, b, 64)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Import(ctx, b.Node(), b.PID(), 1); err != nil { // the link stays
		t.Fatal(err)
	}
	maps := func() int {
		runtime.GC() // mappings go with the collector
		runtime.GC()
		all, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip("no /proc: ", err)
		}
		return bytes.Count(all, []byte("vmmc-claim"))
	}
	before := maps()
	for i := range 30 {
		m, err := b.Alloc(64)
		if err != nil {
			t.Fatal(err)
		}
		exp, err := b.Export(7, alloc(t, b, 64), vmmc.Redirectable(m))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			im, err := a.Import(ctx, b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			if err := exp.PostRedir(m.Bytes(), 0); err != nil {
				t.Fatal(err)
			}
			if err := im.Send(ctx, pattern(64, uint32(i)), 0); err != nil {
				t.Fatal(err)
			}
			if n, _, err := exp.EndRedir(ctx); n != 64 || err != nil {
				t.Fatal(n, err)
			}
			if maps() == 0 {
				t.Fatal("no claim page is mapped")
			}
			if err := im.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := exp.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := eventually(t, func() error {
		if n := maps(); n <= before+4 {
			return errors.New("given back")
		}
		return nil
	}); err == nil {
		t.Error("claim pages stay mapped")
	}
}

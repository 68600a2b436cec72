package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// Many requests on one link are over in order, and what they send has arrived then.
func TestAsyncSendsArriveInOrder(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			ctx := within(t)
			const many = 3000 // more than may be queued
			src := make([]byte, 4*many)
			rs := make([]vmmc.Request, many)
			for i := range rs {
				w := src[4*i : 4*i+4]
				binary.LittleEndian.PutUint32(w, uint32(i+1))
				var err error
				if rs[i], err = s.im.SendAsync(ctx, w, 4*(i%100)); err != nil {
					t.Fatal(err)
				}
			}
			if err := rs[many-1].Wait(ctx); err != nil {
				t.Fatal(err)
			}
			for i, r := range rs {
				if err := r.Status(); err != nil {
					t.Fatalf("request %d of %d, the last is over: %v", i, many, err)
				}
			}
			for i := range 100 {
				at := s.exp.Bytes()[4*i:]
				if got := binary.LittleEndian.Uint32(at); int(got) != many-100+i+1 {
					t.Fatalf("word %d is %d", i, got)
				}
			}
		})
	}
}

// Polling alone brings a request to its end, and a long one too.
func TestAsyncStatusAlone(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, 4<<20)
			ctx := within(t)
			src := bytes.Repeat([]byte{7}, 4<<20)
			for _, n := range []int{4, 448, 4096, 256<<10 + 4, 4 << 20} {
				r, err := s.im.SendAsync(ctx, src[:n], 0)
				if err != nil {
					t.Fatal(err)
				}
				for err = r.Status(); errors.Is(err, vmmc.ErrInProgress); err = r.Status() {
					if ctx.Err() != nil {
						t.Fatalf("%d bytes never arrive", n)
					}
					time.Sleep(100 * time.Microsecond)
				}
				if err != nil || !r.Done() || !bytes.Equal(s.exp.Bytes()[:n], src[:n]) {
					t.Fatalf("%d bytes: %v", n, err)
				}
				clear(s.exp.Bytes()[:n])
			}
		})
	}
}

// Sends, gets and atomics of both kinds keep the order of their calls, and a get
// does not see what was sent after it was made.
func TestAsyncAndSynchronousKeepOneOrder(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, 2<<20)
			ctx := within(t)
			big := make([]byte, 1<<20)
			got := make([]byte, 1<<20)
			for round := byte(1); round < 20; round++ {
				one := bytes.Repeat([]byte{round}, 1<<20)
				two := bytes.Repeat([]byte{round + 100}, 1<<20)
				if _, err := s.im.SendAsync(ctx, one, 0); err != nil {
					t.Fatal(err)
				}
				get, err := s.im.GetAsync(ctx, got, 0)
				if err != nil {
					t.Fatal(err)
				}
				if round%2 == 0 {
					err = s.im.Send(ctx, two, 0)
				} else {
					_, err = s.im.SendAsync(ctx, two, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.im.FetchAdd32(ctx, 0, 1); err != nil {
					t.Fatal(err)
				}
				if err := s.im.Get(ctx, big, 0); err != nil {
					t.Fatal(err)
				}
				if err := get.Wait(ctx); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, one) {
					t.Fatal("a get has what was sent after it was made, or not what was sent before")
				}
				two[0]++
				if !bytes.Equal(big, two) {
					t.Fatal("a get misses what was sent before it")
				}
			}
		})
	}
}

// The zero request, those of an import that ends, and those of a peer that dies.
func TestRequestsThatFail(t *testing.T) {
	var none vmmc.Request
	if err := none.Status(); !errors.Is(err, vmmc.ErrBadAsyncHandle) {
		t.Errorf("status of the zero request: %v", err)
	}
	if err := none.Wait(t.Context()); !errors.Is(err, vmmc.ErrBadAsyncHandle) {
		t.Errorf("wait for the zero request: %v", err)
	}
	for _, way := range ways {
		for name, c := range map[string]struct {
			end  func(*buffers)
			want error
		}{
			"import closed": {func(s *buffers) { s.im.Close() }, vmmc.ErrClosed},
			"export closed": {func(s *buffers) { s.exp.Close() }, vmmc.ErrRevoked},
			"peer gone":     {func(s *buffers) { s.b.Close() }, vmmc.ErrBadIbufState},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				s := exportedSize(t, way, 8<<20)
				ctx := within(t)
				src := make([]byte, 8<<20)
				var rs []vmmc.Request
				for range 20 {
					r, err := s.im.SendAsync(ctx, src, 0)
					if err != nil {
						t.Fatal(err)
					}
					rs = append(rs, r)
				}
				early := rs[0].Wait(ctx)
				c.end(s)
				failed := false
				for i, r := range rs {
					err := r.Wait(ctx)
					switch {
					case err != nil && !errors.Is(err, c.want):
						t.Errorf("request %d: %v, want %v", i, err, c.want)
					case err == nil && failed:
						t.Errorf("request %d is over well after one that was not", i)
					}
					failed = failed || err != nil
					if again := r.Status(); (again == nil) != (err == nil) {
						t.Errorf("request %d: %v, and asked again %v", i, err, again)
					}
				}
				if early != nil || rs[0].Status() != nil {
					t.Errorf("the first arrived before: %v, %v", early, rs[0].Status())
				}
			})
		}
	}
}

func TestImportAsync(t *testing.T) {
	for _, way := range ways[1:] {
		near, far := nodes(t, way)
		a, b := join(t, near), join(t, far)
		ctx := within(t)
		r := manual.ImportAsync(ctx, a, b.Node(), b.PID(), 7)
		if _, err := r.Status(); !errors.Is(err, vmmc.ErrInProgress) {
			t.Fatalf("an import of a buffer that is not exported: %v", err)
		}
		if _, err := b.Export(7, alloc(t, b, 4096)); err != nil {
			t.Fatal(err)
		}
		im, err := r.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := im.Send(ctx, w32(1), 0); err != nil {
			t.Error(err)
		}
		if _, err := r.Status(); !errors.Is(err, vmmc.ErrStaleHandle) {
			t.Errorf("asked again: %v", err)
		}
		r.Cancel() // too late: the import is the caller's
		if err := im.Send(ctx, w32(1), 0); err != nil {
			t.Error(err)
		}
		never := manual.ImportAsync(ctx, a, b.Node(), b.PID(), 8)
		never.Cancel()
		if _, err := never.Status(); !errors.Is(err, vmmc.ErrCanceled) {
			t.Errorf("cancelled: %v", err)
		}
		left := manual.ImportAsync(context.Background(), a, b.Node(), b.PID(), 9)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if _, err := left.Wait(ctx); !errors.Is(err, vmmc.ErrClosed) {
			t.Errorf("of a process that was closed: %v", err)
		}
		var nothing *manual.ImportRequest
		if _, err := nothing.Status(); !errors.Is(err, vmmc.ErrBadAsyncHandle) {
			t.Errorf("a nil request: %v", err)
		}
	}
}

package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Asynchronous messages that go by both ways become visible in the order of
// their calls, also behind those that are queued, put off, or wait for a get.
func TestAsyncOrderOverBothWays(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	ctx := within(t)
	const large = 1 << 20
	mem := map[string][]byte{"mapped": alloc(t, b, large), "stream": alloc(t, b, large)}
	ims := map[string]*vmmc.Import{}
	words := map[string]vmmc.Word{}
	for id, way := range []string{"mapped", "stream"} {
		var opts []vmmc.ExportOption
		if way == "stream" {
			opts = append(opts, vmmc.Unmapped())
		}
		exp, err := b.Export(uint32(id), mem[way], opts...)
		if err != nil {
			t.Fatal(err)
		}
		if words[way], err = exp.Word(0); err != nil {
			t.Fatal(err)
		}
		if ims[way], err = a.Import(ctx, b.Node(), b.PID(), uint32(id)); err != nil {
			t.Fatal(err)
		}
		if ims[way].Path().String() != way {
			t.Fatalf("the path is %s, want %s", ims[way].Path(), way)
		}
	}
	got := make([]byte, large-4)
	for round := uint32(1); round <= 200; round++ {
		data, flag := "mapped", "stream"
		if round%2 == 0 {
			data, flag = flag, data
		}
		src := bytes.Repeat(w32(round), (large-4)/4)
		switch round / 2 % 3 {
		case 1: // what follows is put off behind a get of the same place
			if _, err := ims[data].GetAsync(ctx, got, 4); err != nil {
				t.Fatal(err)
			}
		case 2: // a part of it is queued already
			if _, err := ims[data].SendAsync(ctx, src[:large/2], 4); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ims[data].SendAsync(ctx, src, 4); err != nil {
			t.Fatal(err)
		}
		var r vmmc.Request
		var err error
		if round/6%2 == 0 {
			r, err = ims[flag].SendAsync(ctx, w32(round), 0)
		} else {
			err = ims[flag].Send(ctx, w32(round), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		for v := words[flag].Load(); v != round; {
			if v, err = words[flag].Wait(ctx, v); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(mem[data][4:], src) {
			t.Fatalf("round %d: the flag (%s) is there before the data (%s)", round, flag, data)
		}
		if err := r.Wait(ctx); err != nil && !errors.Is(err, vmmc.ErrBadAsyncHandle) {
			t.Fatal(err)
		}
	}
}

// An asynchronous send runs the handler, in the order of the calls, and a
// request that is over has its data in place.
func TestAsyncNotify(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			const many = 200 // more than there are credits
			ran := make(chan uint32, many)
			s := exported(t, way, vmmc.WithHandler(func(n vmmc.Notification) {
				if got := binary.LittleEndian.Uint32(n.At); n.Offset != 8 || got < n.Word {
					t.Errorf("message %d at %d, and %d is there", n.Word, n.Offset, got)
				}
				ran <- n.Word
			}))
			ctx := within(t)
			words := pattern(4*many, 0) // each message has memory of its own
			for i := range many {
				src := words[4*i : 4*i+4]
				binary.LittleEndian.PutUint32(src, uint32(i))
				r, err := s.im.SendNotifyAsync(ctx, src, 8)
				if err != nil {
					t.Fatal(err)
				}
				if i == many-1 {
					if err := r.Wait(ctx); err != nil || !bytes.Equal(s.exp.Bytes()[8:12], src) {
						t.Errorf("%x is there, %v", s.exp.Bytes()[8:12], err)
					}
				}
			}
			for i := range uint32(many) {
				select {
				case w := <-ran:
					if w != i {
						t.Fatalf("notification %d ran in place of %d", w, i)
					}
				case <-ctx.Done():
					t.Fatalf("notification %d never ran", i)
				}
			}
		})
	}
}

// A send may be over before a get that was made earlier, of other words; what
// each brings is not changed by that.
func TestRequestsOfBothKinds(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, 4<<20)
			ctx := within(t)
			dst := make([]byte, 4<<20-4)
			get, err := s.im.GetAsync(ctx, dst, 0)
			if err != nil {
				t.Fatal(err)
			}
			send, err := s.im.SendAsync(ctx, w32(5), 4<<20-4)
			if err != nil {
				t.Fatal(err)
			}
			if err := send.Wait(ctx); err != nil || !bytes.Equal(s.exp.Bytes()[4<<20-4:], w32(5)) {
				t.Errorf("the send: %v", err)
			}
			if err := get.Status(); err != nil {
				t.Errorf("the get, which was made before the send that is over: %v", err)
			}
			if err := get.Wait(ctx); err != nil || !bytes.Equal(dst, bytes.Repeat([]byte{guard}, len(dst))) {
				t.Errorf("the get: %v", err)
			}
		})
	}
}

// There is no end of data where there is no redirection, and asking is harmless.
func TestDataEndOfNothing(t *testing.T) {
	for _, way := range redirWays {
		t.Run(way, func(t *testing.T) {
			s, _ := redirected(t, way, size)
			ctx := within(t)
			plain, im := s.another(t, 8)
			if err := im.Send(ctx, word, 0); err != nil {
				t.Fatal(err)
			}
			if err := im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			plain.ClearDataEnd()
			if off, ok := plain.DataEnd(); ok {
				t.Errorf("data end %d of a buffer that is not redirectable", off)
			}
			// What is written as bytes, and atomics, are no messages with an end.
			if _, err := s.im.WriteAt(word, 16); err != nil {
				t.Fatal(err)
			}
			if _, err := s.im.FetchAdd32(ctx, 32, 1); err != nil {
				t.Fatal(err)
			}
			if off, ok := s.exp.DataEnd(); ok {
				t.Errorf("data end %d without a message", off)
			}
			if err := s.exp.Close(); err != nil {
				t.Fatal(err)
			}
			s.exp.ClearDataEnd()
			if off, ok := s.exp.DataEnd(); ok {
				t.Errorf("data end %d of a closed export", off)
			}
		})
	}
}

// A process that closes does not wait for the notifications that it blocks itself: they
// are discarded, and their sender learns that the exporter is gone.
func TestLeavingWithBlockedNotifications(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way, vmmc.WithHandler(func(vmmc.Notification) { t.Error("a blocked handler ran") }))
			ctx := within(t)
			s.b.BlockNotifications()
			for range 20 {
				if err := s.im.SendNotify(ctx, word, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			if err := s.b.Close(); err != nil {
				t.Error(err)
			}
			err := eventually(t, func() error { return s.im.SendNotify(ctx, word, 0) })
			if !errors.Is(err, vmmc.ErrBadIbufState) {
				t.Error(err)
			}
		})
	}
}

// A request whose export has ended says why, and the same again when the import is
// closed before it has heard of that end.
func TestRequestsSayTheSameAgain(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			b := join(t, far)
			ctx := within(t)
			mem := alloc(t, b, 128<<10)
			src := make([]byte, len(mem))
			for range 50 {
				var opts []vmmc.ExportOption
				if way != "mapped" {
					opts = append(opts, vmmc.Unmapped())
				}
				exp, err := b.Export(1, mem, opts...)
				if err != nil {
					t.Fatal(err)
				}
				a := b // where it is told least of all before it looks
				if near != far {
					a = join(t, near)
				}
				im, err := a.Import(ctx, b.Node(), b.PID(), 1)
				if err != nil {
					t.Fatal(err)
				}
				var rs [4]vmmc.Request
				for i := range rs {
					if rs[i], err = im.SendAsync(ctx, src[:len(src)>>(8*(i%2))], 0); err != nil {
						t.Fatal(err)
					}
				}
				if err := exp.Close(); err != nil {
					t.Fatal(err)
				}
				var first [len(rs)]error
				for i, r := range rs {
					first[i] = r.Status()
				}
				if err := im.Close(); err != nil {
					t.Fatal(err)
				}
				for i, r := range rs {
					if codeOf(first[i]) == vmmc.ErrInProgress {
						first[i] = r.Wait(ctx)
					}
					if again := r.Status(); codeOf(again) != codeOf(first[i]) {
						t.Fatalf("request %d ended with %v, and then with %v", i, first[i], again)
					}
				}
				if a != b {
					if err := a.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// Long requests of many goroutines all complete, each with its own result. Some goroutines wait at
// once, some later, some for other goroutines' requests, some poll, and some sleep until the
// requests of others have arrived.
func TestLongRequestsOfMany(t *testing.T) {
	const (
		many  = 4
		part  = 1 << 20
		turns = 60
	)
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, many*part)
			ctx := within(t)
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(9, uint64(i)))
					src, got := make([]byte, part), make([]byte, part)
					for turn := byte(1); turn <= turns && !t.Failed(); turn++ {
						n := (70<<10 + rng.IntN(part-70<<10)) &^ 7
						for j := range src[:n] {
							src[j] = turn
						}
						if err := longRequest(ctx, s, src[:n], got[:n], i*part, rng); err != nil {
							t.Errorf("turn %d of goroutine %d: %v", turn, i, err)
							return // requests that are under way still have the memory
						}
						if !bytes.Equal(got[:n], src[:n]) {
							t.Errorf("turn %d of goroutine %d has got what it had not sent", turn, i)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// longRequest sends src to off and gets it back, and comes for both in one of many ways.
func longRequest(ctx context.Context, s *buffers, src, got []byte, off int, rng *rand.Rand) error {
	put, err := s.im.SendAsync(ctx, src, off)
	if err != nil {
		return err
	}
	var get vmmc.Request
	if rng.IntN(3) > 0 {
		get, err = s.im.GetAsync(ctx, got, off)
	} else {
		err = s.im.Get(ctx, got, off) // which waits for what was put off
	}
	if err != nil {
		return err
	}
	switch rng.IntN(5) {
	case 0:
		time.Sleep(time.Millisecond)
	case 1:
		for err = put.Status(); errors.Is(err, vmmc.ErrInProgress); err = put.Status() {
			time.Sleep(10 * time.Microsecond)
		}
	case 2:
		err = s.im.Fence(ctx)
	case 3:
		short, stop := context.WithTimeout(ctx, 20*time.Microsecond)
		if err = put.Wait(short); errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		stop()
	}
	if err == nil && !errors.Is(get.Status(), vmmc.ErrBadAsyncHandle) {
		err = get.Wait(ctx)
	}
	return errors.Join(err, put.Wait(ctx))
}

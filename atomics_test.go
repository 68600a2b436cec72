package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Atomics of several importers, by all ways, and of the exporter itself are one
// step each: no count is lost, no ticket given out twice.
func TestAtomicsCountEverything(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			b := join(t, far)
			ctx := within(t)
			mem := alloc(t, b, size)
			var opts []vmmc.ExportOption
			if way != "mapped" {
				opts = append(opts, vmmc.Unmapped())
			}
			exp, err := b.Export(7, mem, opts...)
			if err != nil {
				t.Fatal(err)
			}
			const workers, each = 4, 300
			var wg sync.WaitGroup
			var mu sync.Mutex
			tickets := map[uint64]bool{}
			for range workers {
				im, err := join(t, near).Import(ctx, b.Node(), b.PID(), 7)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					for range each {
						if _, err := im.FetchAdd32(ctx, 0, 3); err != nil {
							t.Error(err)
						}
						n, err := im.FetchAdd64(ctx, 8, 1<<33+1)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						if tickets[n] {
							t.Errorf("ticket %d was given out twice", n)
						}
						tickets[n] = true
						mu.Unlock()
						for { // a lock, and what it protects
							if _, ok, err := im.CompareAndSwap32(ctx, 16, 0, 1); err != nil || ok {
								break
							}
						}
						var v [4]byte
						if err := im.Get(ctx, v[:], 20); err != nil {
							t.Error(err)
						}
						if err := im.Send(ctx, w32(binary.LittleEndian.Uint32(v[:])+1), 20); err != nil {
							t.Error(err)
						}
						if old, err := im.Swap32(ctx, 16, 0); old != 1 || err != nil {
							t.Errorf("the lock was %d, %v", old, err)
						}
					}
				})
			}
			w, _ := exp.Word(0)
			for range each {
				w.Add(3)
			}
			wg.Wait()
			w64, err := exp.Word64(8)
			if err != nil {
				t.Fatal(err)
			}
			if n := w.Load(); n != (workers+1)*each*3 {
				t.Errorf("32 bits: %d", n)
			}
			if n := w64.Load(); n != workers*each*(1<<33+1) {
				t.Errorf("64 bits: %d", n)
			}
			if n := binary.LittleEndian.Uint32(mem[20:]); n != workers*each {
				t.Errorf("under the lock: %d", n)
			}
		})
	}
}

func TestAtomicsOneByOne(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			ctx := within(t)
			clear(s.exp.Bytes())
			w, err := s.exp.Word64(64)
			if err != nil {
				t.Fatal(err)
			}
			w.Store(7)
			if old, err := s.im.Swap64(ctx, 64, 9); old != 7 || err != nil {
				t.Error(old, err)
			}
			if prev, ok, err := s.im.CompareAndSwap64(ctx, 64, 8, 1); prev != 9 || ok || err != nil {
				t.Error(prev, ok, err)
			}
			if prev, ok, err := s.im.CompareAndSwap64(ctx, 64, 9, 1<<40); prev != 9 || !ok || err != nil || w.Load() != 1<<40 {
				t.Error(prev, ok, err)
			}
			if old, err := s.im.FetchAdd32(ctx, size-4, ^uint32(0)); old != 0 || err != nil {
				t.Error(old, err)
			}
			if old, err := s.im.FetchAdd32(ctx, size-4, 1); old != ^uint32(0) || err != nil {
				t.Error(old, err)
			}
			// It arrives after what was sent before, and wakes waiters.
			if _, err := s.im.SendAsync(ctx, w32(41), 128); err != nil {
				t.Fatal(err)
			}
			if old, err := s.im.FetchAdd32(ctx, 128, 1); old != 41 || err != nil {
				t.Error(old, err)
			}
			flag, _ := s.exp.Word(132)
			var wg sync.WaitGroup
			wg.Go(func() {
				time.Sleep(5 * time.Millisecond)
				if _, err := s.im.Swap32(ctx, 132, 5); err != nil {
					t.Error(err)
				}
			})
			if v, err := flag.Wait(ctx, 0); v != 5 || err != nil {
				t.Error(v, err)
			}
			wg.Wait()
			for what, c := range map[string]struct {
				off, bits int
				want      error
			}{
				"over the end":      {size, 32, vmmc.ErrBadProxyAddr},
				"half over the end": {size - 4, 64, vmmc.ErrBadProxyAddr},
				"before":            {-4, 32, vmmc.ErrBadProxyAddr},
				"odd":               {2, 32, vmmc.ErrBadAlignment},
				"half odd":          {4, 64, vmmc.ErrBadAlignment},
			} {
				var errs [3]error
				if c.bits == 32 {
					_, errs[0] = s.im.FetchAdd32(ctx, c.off, 1)
					_, errs[1] = s.im.Swap32(ctx, c.off, 1)
					_, _, errs[2] = s.im.CompareAndSwap32(ctx, c.off, 0, 1)
				} else {
					_, errs[0] = s.im.FetchAdd64(ctx, c.off, 1)
					_, errs[1] = s.im.Swap64(ctx, c.off, 1)
					_, _, errs[2] = s.im.CompareAndSwap64(ctx, c.off, 0, 1)
				}
				for _, err := range errs {
					if !errors.Is(err, c.want) {
						t.Errorf("%s: %v, want %v", what, err, c.want)
					}
				}
			}
			for _, rights := range []vmmc.ExportOption{vmmc.ReadOnly(), vmmc.WriteOnly()} {
				e, im := s.another(t, 8, rights)
				if _, err := im.FetchAdd32(ctx, 0, 1); !errors.Is(err, vmmc.ErrNoRights) {
					t.Errorf("an atomic without the rights: %v", err)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Memory that begins between two 64-bit words has none that an importer's offset
// would name; the exporter says so and the import lives.
func TestWideAtomicOnNarrowMemory(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	ctx := within(t)
	mem := alloc(t, b, 72)
	if _, err := b.Export(7, mem[4:68], vmmc.Unmapped()); err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.FetchAdd64(ctx, 0, 1); !errors.Is(err, vmmc.ErrBadAlignment) {
		t.Error(err)
	}
	if old, err := im.FetchAdd32(ctx, 4, 1); old != 0 || err != nil || mem[8] != 1 {
		t.Error(old, err)
	}
}

// An atomic whose context ends while its answer is awaited is done once, and what came of it can be
// learnt.
func TestOutcomeOfACancelledAtomic(t *testing.T) {
	const way = "between nodes"
	type atomicOp struct {
		name       string
		call       func(ctx context.Context, im *vmmc.Import) error
		old, after uint64
	}
	ops := []atomicOp{
		{"add 32", func(ctx context.Context, im *vmmc.Import) error { _, err := im.FetchAdd32(ctx, 8, 5); return err }, 7, 12},
		{"add 64", func(ctx context.Context, im *vmmc.Import) error { _, err := im.FetchAdd64(ctx, 8, 5); return err }, 7, 12},
		{"swap 32", func(ctx context.Context, im *vmmc.Import) error { _, err := im.Swap32(ctx, 8, 9); return err }, 7, 9},
		{"swap 64", func(ctx context.Context, im *vmmc.Import) error { _, err := im.Swap64(ctx, 8, 9); return err }, 7, 9},
		{"compare and swap 32", func(ctx context.Context, im *vmmc.Import) error {
			_, _, err := im.CompareAndSwap32(ctx, 8, 7, 9)
			return err
		}, 7, 9},
		{"compare and swap 64, another value", func(ctx context.Context, im *vmmc.Import) error {
			_, _, err := im.CompareAndSwap64(ctx, 8, 6, 9)
			return err
		}, 7, 7},
	}
	// begun is an atomic that is in flight, or whose answer is, when its call ends.
	type begun struct {
		a, b *vmmc.Process
		g    *gate
		mem  []byte
		exp  *vmmc.Export
		im   *vmmc.Import
		o    *vmmc.Outcome
	}
	begin := func(t *testing.T, held int, op *atomicOp, opts ...vmmc.Option) (s begun) {
		t.Helper()
		near, far := nodes(t, way)
		var err error
		s.a, s.b, s.g = join(t, near, opts...), join(t, far), newGate(t, held)
		vmmc.SetDialer(s.a, s.g.dial)
		s.mem = alloc(t, s.b, 4096)
		binary.LittleEndian.PutUint64(s.mem[8:], 7)
		if s.exp, err = s.b.Export(1, s.mem); err != nil {
			t.Fatal(err)
		}
		if s.im, err = s.a.Import(within(t), s.b.Node(), s.b.PID(), 1); err != nil {
			t.Fatal(err)
		}
		if err := s.im.Get(within(t), make([]byte, 4), 0); err != nil {
			t.Fatal(err)
		}
		s.g.shut.Store(true)
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		err = op.call(ctx, s.im)
		if !errors.Is(err, vmmc.ErrOutcomeUnknown) || !errors.Is(err, vmmc.ErrTimeout) {
			t.Fatalf("the call: %v", err)
		}
		var ok bool
		if s.o, ok = vmmc.OutcomeOf(err); !ok {
			t.Fatalf("no outcome of: %v", err)
		}
		return s
	}
	wait := func(t *testing.T, o *vmmc.Outcome) (uint64, error) {
		t.Helper()
		return o.Wait(within(t))
	}
	for held, name := range []string{"the request is late", "the answer is late"} {
		for i := range ops {
			op := &ops[i]
			t.Run(name+"/"+op.name, func(t *testing.T) {
				s := begin(t, held, op)
				ctx, stop := context.WithCancel(t.Context())
				stop()
				_, err := s.o.Wait(ctx)
				if again, ok := vmmc.OutcomeOf(err); !errors.Is(err, vmmc.ErrOutcomeUnknown) || !ok || again != s.o {
					t.Errorf("a wait whose context has ended: %v", err)
				}
				var none context.Context
				_, err = s.o.Wait(none)
				if again, ok := vmmc.OutcomeOf(err); !errors.Is(err, vmmc.ErrBadArg) || !ok || again != s.o {
					t.Errorf("a wait without a context: %v", err)
				}
				s.g.open()
				for range 2 {
					if old, err := wait(t, s.o); old != op.old || err != nil {
						t.Errorf("there was %d before (%v), want %d", old, err, op.old)
					}
				}
				if v := binary.LittleEndian.Uint64(s.mem[8:]); v != op.after {
					t.Errorf("the word is %d, want %d", v, op.after)
				}
				if err := s.im.Send(within(t), w32(1), 0); err != nil { // the link goes on
					t.Error(err)
				}
			})
		}
	}
	t.Run("the export is closed before it arrives", func(t *testing.T) {
		s := begin(t, 0, &ops[1])
		if err := s.exp.Close(); err != nil {
			t.Fatal(err)
		}
		s.g.open()
		if _, err := wait(t, s.o); !errors.Is(err, vmmc.ErrRevoked) || errors.Is(err, vmmc.ErrOutcomeUnknown) {
			t.Errorf("it was not done: %v", err)
		}
	})
	t.Run("the import is closed", func(t *testing.T) {
		s := begin(t, 1, &ops[1])
		if err := s.im.Close(); err != nil {
			t.Fatal(err)
		}
		s.g.open()
		if old, err := wait(t, s.o); old != 7 || err != nil {
			t.Errorf("there was %d before: %v", old, err)
		}
	})
	t.Run("the link ends", func(t *testing.T) {
		s := begin(t, 0, &ops[1], vmmc.WithResume(0))
		s.g.close()
		_, err := wait(t, s.o)
		if _, ok := vmmc.OutcomeOf(err); ok || !errors.Is(err, vmmc.ErrPeerGone) || !errors.Is(err, vmmc.ErrOutcomeUnknown) {
			t.Errorf("it may have been done: %v", err)
		}
	})
	t.Run("nothing was begun", func(t *testing.T) {
		s := exported(t, way)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		for _, err := range []error{nil, errors.New("another"), s.im.Send(within(t), w32(1), 2), func() error { _, err := s.im.FetchAdd64(ctx, 0, 1); return err }()} {
			if _, ok := vmmc.OutcomeOf(err); ok && !errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Errorf("an outcome of: %v", err)
			}
		}
	})
}

package vmmc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

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
	// begun is an atomic that is on its way, or whose answer is, when its call ends.
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

package vmmc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// A 64-bit word is waited for as one of 32 bits: it is found when it is there, and a sleeper is
// woken, by atomics, by either half of a message, and by its own process.
func TestWord64Wait(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			w, err := s.exp.Word64(16)
			if err != nil {
				t.Fatal(err)
			}
			w.Store(0)
			ctx := within(t)
			if v, err := w.Wait(ctx, 1); v != 0 || err != nil {
				t.Errorf("what is there: %d, %v", v, err)
			}
			const high = 1 << 32
			for _, c := range []struct {
				name string
				do   func() error
				want uint64
			}{
				{"an atomic", func() error { _, err := s.im.FetchAdd64(ctx, 16, high); return err }, high},
				{"the second half", func() error { return s.im.Send(ctx, w32(2), 20) }, 2 * high},
				{"the first half", func() error { return s.im.Send(ctx, w32(7), 16) }, 2*high + 7},
				{"its own process", func() error { w.Add(1); return s.im.Send(ctx, w32(1), 64) }, 2*high + 8},
			} {
				for _, asleep := range []bool{false, true} {
					old := w.Load()
					got := make(chan uint64, 1)
					go func() {
						v, err := w.Wait(ctx, old)
						if err != nil {
							t.Error(err)
						}
						got <- v
					}()
					if asleep {
						until(t, "it sleeps", func() bool { return vmmc.Asleep(s.b) })
					}
					if err := c.do(); err != nil {
						t.Fatal(err)
					}
					if v := <-got; v != c.want {
						t.Errorf("%s: %#x, want %#x", c.name, v, c.want)
					}
					w.Store(old)
				}
				w.Store(c.want)
			}
			short, stop := context.WithCancel(ctx)
			stop()
			if _, err := w.Wait(short, w.Load()); !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("a cancelled wait: %v", err)
			}
			if _, err := (vmmc.Word64{}).Wait(ctx, 0); !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("the zero word: %v", err)
			}
			if err := s.b.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

package vmmc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/simnet"
)

// Closing an import ends what waits on it, also where a call waits behind operations of another
// import: while the link has no connection, and while its connection carries nothing.
func TestCloseEndsCalls(t *testing.T) {
	t.Run("no connection", func(t *testing.T) { closeEndsCalls(t, false) })
	t.Run("a connection that stalls", func(t *testing.T) { closeEndsCalls(t, true) })
}

func closeEndsCalls(t *testing.T, stalls bool) {
	const size = 16 << 20
	type call = func(context.Context, *vmmc.Import) error
	long := make([]byte, 512<<10)
	send := func(n int) call {
		return func(ctx context.Context, im *vmmc.Import) error { return im.Send(ctx, long[:n], 0) }
	}
	get := func(ctx context.Context, im *vmmc.Import) error { return im.Get(ctx, make([]byte, 8), 0) }
	// ahead begins what the call waits behind, on another import of the link.
	sends := func(ctx context.Context, im *vmmc.Import) error {
		for range 64 {
			if _, err := im.SendAsync(ctx, long, 0); err != nil {
				return err
			}
		}
		return nil
	}
	gets := func(ctx context.Context, im *vmmc.Import) error {
		for range 4096 {
			if _, err := im.GetAsync(ctx, make([]byte, 8), 0); err != nil {
				return err
			}
		}
		return nil
	}
	calls := []struct {
		name string
		f    call
	}{
		{"Send of 8 bytes", send(8)},
		{"Send of 512 KiB", send(len(long))},
		{"SendNotify", func(ctx context.Context, im *vmmc.Import) error { return im.SendNotify(ctx, long, 0) }},
		{"SendSignal", func(ctx context.Context, im *vmmc.Import) error { return im.SendSignal(ctx, long, 0, 1, size-8) }},
		{"Write", func(ctx context.Context, im *vmmc.Import) error {
			_, err := im.WriteAtContext(ctx, long, 0)
			return err
		}},
		{"Get", get},
		{"FetchAdd", func(ctx context.Context, im *vmmc.Import) error { _, err := im.FetchAdd64(ctx, 0, 1); return err }},
		{"Fence", func(ctx context.Context, im *vmmc.Import) error { return im.Fence(ctx) }},
	}
	for _, ahead := range []struct {
		name string
		f    call
	}{
		{"alone", nil},
		{"behind gets", gets},
		{"behind asynchronous sends", sends},
		{"behind a send", func(_ context.Context, im *vmmc.Import) error {
			go func() { _ = im.Send(context.Background(), make([]byte, size), 0) }()
			time.Sleep(20 * time.Millisecond) // it need not have begun to wait
			return nil
		}},
		{"behind a get", func(_ context.Context, im *vmmc.Import) error {
			go func() { _ = im.Get(context.Background(), make([]byte, size), 0) }()
			time.Sleep(20 * time.Millisecond)
			return nil
		}},
	} {
		for _, c := range calls {
			t.Run(ahead.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				a, b, s, events := surviving(t, time.Hour)
				if stalls {
					s.faults = []simnet.Fault{{At: 64 << 10, Kind: simnet.Stall, For: time.Hour}}
				}
				ctx := within(t)
				mem := alloc(t, b, 2*size)
				var ims [2]*vmmc.Import
				for i := range ims {
					if _, err := b.Export(uint32(i), mem[i*size:][:size]); err != nil {
						t.Fatal(err)
					}
					var err error
					if ims[i], err = a.Import(ctx, b.Node(), b.PID(), uint32(i)); err != nil {
						t.Fatal(err)
					}
				}
				if err := ims[1].Send(ctx, long[:8], 0); err != nil {
					t.Fatal(err)
				}
				if stalls {
					if _, err := ims[0].SendAsync(ctx, long, 0); err != nil {
						t.Fatal(err)
					}
				} else {
					s.cut(false)
					awaitEvent(t, events, vmmc.LinkDown)
				}
				if ahead.f != nil {
					soon, stop := context.WithTimeout(ctx, 50*time.Millisecond)
					err := ahead.f(soon, ims[0])
					stop()
					if err != nil && !errors.Is(err, vmmc.ErrTimeout) {
						t.Fatal(err)
					}
				}
				done := make(chan error, 1)
				go func() { done <- c.f(ctx, ims[1]) }()
				time.Sleep(10 * time.Millisecond) // it need not have begun to wait
				if err := ims[1].Close(); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-done:
					if err != nil && !errors.Is(err, vmmc.ErrClosed) {
						t.Error(err)
					}
				case <-time.After(5 * time.Second):
					t.Error("it goes on")
				}
			})
		}
	}
}

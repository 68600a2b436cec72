package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// A message to a redirectable export whose memory cannot be read fails alone, wherever it would
// have gone: the redirection can be ended, the link lives, and the next message is redirected.
func TestRedirectedMemoryThatCannotBeAccessed(t *testing.T) {
	const long = 256 << 10
	for _, target := range []string{"named", "not named"} {
		for _, size := range []int{8192, long} {
			calls := map[string]func(context.Context, *vmmc.Import, []byte) error{
				"SendAsync": func(ctx context.Context, im *vmmc.Import, b []byte) error {
					return finished(ctx)(im.SendAsync(ctx, b, 0))
				},
				"SendNotifyAsync": func(ctx context.Context, im *vmmc.Import, b []byte) error {
					return finished(ctx)(im.SendNotifyAsync(ctx, b, 0))
				},
			}
			if target == "not named" { // else the sender copies itself, and its access faults
				calls["Send"] = func(ctx context.Context, im *vmmc.Import, b []byte) error { return im.Send(ctx, b, 0) }
				calls["SendNotify"] = func(ctx context.Context, im *vmmc.Import, b []byte) error {
					return im.SendNotify(ctx, b, 0)
				}
			} else if size < long {
				continue // a short one is copied by the sender
			}
			for name, call := range calls {
				t.Run(target+"/"+name, func(t *testing.T) {
					near, far := nodes(t, "mapped")
					b := join(t, far)
					to := make([]byte, long)
					var named []*vmmc.Memory
					if target == "named" {
						m, err := b.Alloc(long)
						if err != nil {
							t.Fatal(err)
						}
						to, named = m.Bytes(), append(named, m)
					}
					ran := make(chan struct{}, 10)
					e, err := b.Export(7, alloc(t, b, long), vmmc.Redirectable(named...),
						vmmc.WithHandler(func(vmmc.Notification) { ran <- struct{}{} }))
					if err != nil {
						t.Fatal(err)
					}
					a := join(t, near)
					im, err := a.Import(within(t), b.Node(), b.PID(), 7)
					if err != nil {
						t.Fatal(err)
					}
					bad := mmapped(t, long/4096, syscall.PROT_READ|syscall.PROT_WRITE)
					if size < long {
						bad = bad[long/2-4096:][:size]
					}
					forbid(t, bad, syscall.PROT_NONE)
					if err := e.PostRedir(to, 0); err != nil {
						t.Fatal(err)
					}
					if err := call(within(t), im, bad); !errors.Is(err, vmmc.ErrBadArg) {
						t.Errorf("%v, want %v", err, vmmc.ErrBadArg)
					}
					if _, _, err := e.EndRedir(within(t)); err != nil {
						t.Fatalf("the redirection does not end: %v", err)
					}
					clear(to)
					if err := e.PostRedir(to, 0); err != nil {
						t.Fatal(err)
					}
					good := bytes.Repeat([]byte{1, 2, 3, 4}, size/4)
					if err := im.SendNotify(within(t), good, 0); err != nil {
						t.Fatalf("another send: %v", err)
					}
					<-ran
					if n, _, err := e.EndRedir(within(t)); err != nil || n != size || !bytes.Equal(to[:size], good) {
						t.Errorf("%d bytes of another were redirected: %v", n, err)
					}
					if len(ran) > 0 {
						t.Error("a message that failed has notified")
					}
				})
			}
		}
	}
}

// finished waits for a request, if it was begun.
func finished(ctx context.Context) func(vmmc.Request, error) error {
	return func(r vmmc.Request, err error) error {
		if err == nil {
			err = r.Wait(ctx)
		}
		return err
	}
}

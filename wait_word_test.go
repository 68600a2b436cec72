package vmmc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// A waiter for an answer gets it, or learns that the sender has ended or has closed the export.
func TestWaitWord(t *testing.T) {
	for name, end := range map[string]func(b *vmmc.Process, e *vmmc.Export) error{
		"revoked": func(_ *vmmc.Process, e *vmmc.Export) error { return e.Close() },
		"gone":    func(b *vmmc.Process, _ *vmmc.Export) error { return b.Close() },
	} {
		for _, path := range []string{"mapped", "stream"} {
			t.Run(name+" "+path, func(t *testing.T) {
				n := start(t)
				a, b := open(t, n), open(t, n)
				var opts []vmmc.ExportOption
				if path == "stream" {
					opts = append(opts, vmmc.Unmapped())
				}
				asked, err := b.Export(1, alloc(t, b, 64), opts...)
				if err != nil {
					t.Fatal(err)
				}
				answers, err := a.Export(1, alloc(t, a, 64), opts...)
				if err != nil {
					t.Fatal(err)
				}
				ask, err := a.Import(t.Context(), b.Node(), b.PID(), 1)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := b.Import(t.Context(), a.Node(), a.PID(), 1)
				if err != nil {
					t.Fatal(err)
				}
				w, err := answers.Word(8)
				if err != nil {
					t.Fatal(err)
				}
				if err := answer.Send(t.Context(), []byte{7, 0, 0, 0}, 8); err != nil {
					t.Fatal(err)
				}
				if v, err := ask.WaitWord(t.Context(), w, 0); v != 7 || err != nil {
					t.Fatalf("an answer: %d, %v", v, err)
				}
				ctx, stop := context.WithCancel(t.Context())
				stop()
				if v, err := ask.WaitWord(ctx, w, 7); v != 7 || !errors.Is(err, context.Canceled) {
					t.Errorf("given up: %d, %v", v, err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := ask.WaitWord(context.Background(), w, 7)
					ended <- err
				}()
				if err := end(b, asked); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; !errors.Is(err, vmmc.ErrRevoked) && !errors.Is(err, vmmc.ErrPeerGone) {
					t.Error(err)
				}
				if v, err := ask.WaitWord(context.Background(), w, 0); v != 7 || err != nil {
					t.Errorf("an answer that was there: %d, %v", v, err)
				}
				if _, err := ask.WaitWord(context.Background(), vmmc.Word{}, 0); !errors.Is(err, vmmc.ErrBadArg) {
					t.Error(err)
				}
			})
		}
	}
}

// No message tells the waiter that a process was killed; the end of the link does.
func TestWaitWordOfAKilledProcess(t *testing.T) {
	for _, path := range []string{"mapped", "stream"} {
		t.Run(path, func(t *testing.T) {
			n := start(t)
			a := open(t, n)
			child := testutil.Command(t, "bound", n.Socket(), path)
			var pid vmmc.PID
			testutil.Start(t, child, &pid)
			ask, err := a.Import(t.Context(), a.Node(), pid, 7)
			if err != nil {
				t.Fatal(err)
			}
			answers, err := a.Export(1, alloc(t, a, 64))
			if err != nil {
				t.Fatal(err)
			}
			w, err := answers.Word(0)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := ask.WaitWord(context.Background(), w, 0)
				ended <- err
			}()
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("while it waits: %v", err)
			}
			if _, err := ask.WaitWord(context.Background(), w, 0); !errors.Is(err, vmmc.ErrPeerGone) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

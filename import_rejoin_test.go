package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

func TestRejoin(t *testing.T) {
	for _, way := range []string{"mapped", "between nodes"} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b, c := join(t, near), join(t, far), join(t, far)
			mem := alloc(t, b, 64)
			e, err := b.Export(7, mem)
			if err != nil {
				t.Fatal(err)
			}
			ctx := within(t)
			im, err := a.Import(ctx, b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := im.Rejoin(ctx); again != im || err != nil {
				t.Errorf("an import that lives: %v, %v", again, err)
			}
			replace := func(p *vmmc.Process, size int, opts ...vmmc.ExportOption) {
				t.Helper()
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
				mem = alloc(t, p, size)
				if e, err = p.Export(7, mem, opts...); err != nil {
					t.Fatal(err)
				}
				until(t, "the import has ended", func() bool { return im.Send(ctx, word, 0) != nil })
			}
			stale := func(what string, peer vmmc.ProcessID) {
				t.Helper()
				if _, err := im.RejoinAt(ctx, peer); !errors.Is(err, vmmc.ErrStaleImport) {
					t.Errorf("%s: %v", what, err)
				}
			}
			at := func(p *vmmc.Process) vmmc.ProcessID { return vmmc.ProcessID{Node: p.Node(), PID: p.PID()} }
			works := func() {
				t.Helper()
				again, err := im.Rejoin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := im.Send(ctx, word, 0); !errors.Is(err, vmmc.ErrClosed) && !errors.Is(err, vmmc.ErrRevoked) && !errors.Is(err, vmmc.ErrPeerGone) {
					t.Errorf("the old import: %v", err)
				}
				im = again
				if err := errors.Join(im.Send(ctx, word, 0), im.Fence(ctx)); err != nil || !bytes.Equal(mem[:4], word) {
					t.Errorf("a send on the new one: %v, %x", err, mem[:4])
				}
			}
			replace(b, 64)
			works()
			replace(b, 128)
			stale("another length", at(b))
			replace(b, 64, vmmc.ReadOnly())
			stale("fewer rights", at(b))
			replace(b, 64)
			works()

			// The exporter has ended, and another process has taken its place.
			replace(c, 64)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			until(t, "the exporter is known to be gone", func() bool {
				_, err := im.Rejoin(ctx)
				return errors.Is(err, vmmc.ErrNoSuchProcess)
			})
			if im, err = im.RejoinAt(ctx, at(c)); err != nil {
				t.Fatal(err)
			}
			if again, err := im.Rejoin(ctx); again != im || err != nil {
				t.Errorf("at its new place: %v", err)
			}
			short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
			defer stop()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			until(t, "the import has ended", func() bool { return im.Send(ctx, word, 0) != nil })
			if _, err := im.Rejoin(short); !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("a rejoin of a buffer that is not exported: %v", err)
			}
			if err := im.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := im.Rejoin(ctx); !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("a closed one: %v", err)
			}
		})
	}
}

func TestRejoinAfterLinkEnd(t *testing.T) {
	for _, way := range []string{"mapped", "between nodes"} {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := join(t, near), join(t, far)
			if _, err := b.Export(7, alloc(t, b, 64)); err != nil {
				t.Fatal(err)
			}
			ctx := within(t)
			im, err := a.Import(ctx, b.Node(), b.PID(), 7)
			if err != nil {
				t.Fatal(err)
			}
			vmmc.SeverLinks(a)
			until(t, "the import is lost", func() bool { return vmmc.ImportState(im) == "lost" })
			again, err := im.Rejoin(ctx)
			if err != nil || again == im {
				t.Fatalf("after the link's end: %v, the same import: %v", err, again == im)
			}
			if err := again.Send(ctx, word, 0); err != nil {
				t.Error(err)
			}
			if s := vmmc.ImportState(im); s != "closed" {
				t.Errorf("the old import is %s", s)
			}
		})
	}
}

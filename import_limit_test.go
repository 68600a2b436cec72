package vmmc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// limited is a process that may import so many bytes.
func limited(t testing.TB, socket string, bytes int64) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(socket), vmmc.WithImportLimit(bytes))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestImportLimit(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b := limited(t, near, 3*size), join(t, far)
			mem := alloc(t, b, size)
			var opts []vmmc.ExportOption
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			if _, err := b.Export(1, mem, opts...); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Export(2, make([]byte, 3*size+4)); err != nil {
				t.Fatal(err)
			}
			get := func(id uint32) (*vmmc.Import, error) {
				return a.Import(t.Context(), b.Node(), b.PID(), id)
			}
			full := func(id uint32) {
				t.Helper()
				_, err := get(id)
				if !errors.Is(err, vmmc.ErrNoPhysDestSpace) || !strings.Contains(err.Error(), b.ID().String()) || !strings.Contains(err.Error(), "24576") {
					t.Errorf("beyond the limit: %v, want %v", err, vmmc.ErrNoPhysDestSpace)
				}
			}
			full(2)
			var ims []*vmmc.Import
			for range 3 {
				im, err := get(1)
				if err != nil {
					t.Fatal(err)
				}
				ims = append(ims, im)
			}
			full(1)
			for range 2 { // twice gives no more room than once
				if err := ims[0].Close(); err != nil {
					t.Fatal(err)
				}
			}
			im, err := get(1)
			if err != nil {
				t.Fatalf("after a close: %v", err)
			}
			full(1)
			// Returning the grants of refused imports must not have withdrawn im's.
			if err := im.Send(t.Context(), word, 0); err != nil {
				t.Error(err)
			}
			// What its exporter has ended counts until it is closed.
			b.Close()
			for _, im := range append(ims[1:], im) {
				if err := eventually(t, func() error { return im.Send(t.Context(), word, 0) }); err == nil {
					t.Error("a send to an exporter that is gone")
				}
			}
			c := join(t, far)
			if _, err := c.Export(1, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Import(t.Context(), c.Node(), c.PID(), 1); !errors.Is(err, vmmc.ErrNoPhysDestSpace) {
				t.Errorf("while dead imports are open: %v, want %v", err, vmmc.ErrNoPhysDestSpace)
			}
			if err := im.Close(); err != nil {
				t.Error(err)
			}
			if _, err := a.Import(t.Context(), c.Node(), c.PID(), 1); err != nil {
				t.Errorf("after a dead one was closed: %v", err)
			}
		})
	}
	if _, err := vmmc.Open(t.Context(), vmmc.WithImportLimit(-1)); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a negative limit: %v, want %v", err, vmmc.ErrBadArg)
	}
}

// However imports and their ends meet, the limit holds, and nothing is lost.
func TestImportLimitHoldsAtOnce(t *testing.T) {
	n := start(t)
	b := open(t, n)
	const most = 4
	a := limited(t, n.Socket(), most*size)
	for id := range uint32(3) {
		if _, err := b.Export(id, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	var at, refused atomic.Int32
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range 50 {
				im, err := a.Import(t.Context(), b.Node(), b.PID(), rng.Uint32N(3))
				switch {
				case errors.Is(err, vmmc.ErrNoPhysDestSpace):
					refused.Add(1)
					continue
				case err != nil:
					t.Error(err)
					return
				}
				if now := at.Add(1); now > most {
					t.Errorf("%d imports are open, at most %d may be", now, most)
				}
				if err := im.Send(t.Context(), word, 0); err != nil {
					t.Error(err)
				}
				at.Add(-1)
				var twice sync.WaitGroup
				for range 2 {
					twice.Go(func() { _ = im.Close() })
				}
				twice.Wait()
			}
		})
	}
	all.Wait()
	for i := range most + 1 {
		if _, err := a.Import(t.Context(), b.Node(), b.PID(), 0); (err == nil) != (i < most) {
			t.Errorf("import %d of %d, after all were closed (%d were refused): %v", i+1, most, refused.Load(), err)
		}
	}
}

// An import that fails gives its room back, and what is refused for want of room
// goes back to its exporter.
func TestImportLimitAfterFailure(t *testing.T) {
	n := start(t)
	a := limited(t, n.Socket(), size)
	back := make(chan uint32, 1)
	bad := newOutlaw(t, n.Socket(), 9, func(_ context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
		closeAll(fds)
		switch m {
		case nodeproto.Offer:
			r, err := nodeproto.Decode[nodeproto.OfferRequest](body)
			return nodeproto.Grant{Handle: r.ID, Size: int(r.ID), Rights: nodeproto.MayWrite}, nil, err
		case nodeproto.Withdraw:
			r, err := nodeproto.Decode[nodeproto.ReleaseRequest](body)
			back <- r.Handle
			return nodeproto.Empty{}, nil, err
		}
		return nil, nil, code.NoRights // and no link
	})
	for _, id := range []uint32{size, size + 4} {
		r := nodeproto.ExportRequest{ID: id, Size: int(id), Rights: nodeproto.MayWrite}
		if _, err := bad.Call(t.Context(), nodeproto.Export, r, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		for id, want := range map[uint32]error{size: vmmc.ErrNoRights, size + 4: vmmc.ErrNoPhysDestSpace} {
			if _, err := a.Import(t.Context(), a.Node(), vmmc.PID(bad.id.PID), id); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			select {
			case h := <-back:
				if h != id {
					t.Errorf("import %d went back, want %d", h, id)
				}
			case <-time.After(bound):
				t.Fatal("the exporter was not told")
			}
		}
	}
}

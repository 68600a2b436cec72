package vmmc_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// An import is a range of addresses; arithmetic works in it, and nowhere else.
func TestDestSpace(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			ctx := within(t)
			exp8, im8 := s.another(t, 8)
			p := s.a
			twice, err := p.Import(ctx, s.b.Node(), s.b.PID(), 8)
			if err != nil {
				t.Fatal(err)
			}
			addr := im8.Addr()
			for i, send := range []func() error{
				func() error { return p.Send(ctx, w32(1), addr) },
				func() error { return p.SendNotify(ctx, w32(2), addr+4) },
				func() error { return p.Send(ctx, w32(3), im8.Addr()+size-4) },
				func() error { return p.Send(ctx, w32(4), twice.Addr()+8) },
				func() error {
					r, err := p.SendAsync(ctx, w32(5), addr+12)
					if err == nil {
						err = r.Wait(ctx)
					}
					return err
				},
				func() error {
					r, err := p.SendNotifyAsync(ctx, w32(6), addr+16)
					if err == nil {
						err = r.Wait(ctx)
					}
					return err
				},
			} {
				if err := send(); err != nil {
					t.Errorf("send %d: %v", i, err)
				}
			}
			got := make([]byte, size)
			if err := p.Get(ctx, got, addr); err != nil {
				t.Error(err)
			}
			want := bytes.Join([][]byte{w32(1), w32(2), w32(4), w32(5), w32(6)}, nil)
			if !bytes.Equal(got[:20], want) || !bytes.Equal(got[size-4:], w32(3)) || !bytes.Equal(got, exp8.Bytes()) {
				t.Errorf("the buffer begins with %x", got[:20])
			}
			if r, err := p.GetAsync(ctx, got[:8], addr+4); err != nil || r.Wait(ctx) != nil || !bytes.Equal(got[:8], want[4:12]) {
				t.Errorf("%x, %v", got[:8], err)
			}
			if im, off, err := p.Lookup(addr + 100); im != im8 || off != 100 || err != nil {
				t.Errorf("looked up: %v at %d, %v", im, off, err)
			}

			gone, old := s.another(t, 9)
			stale := old.Addr()
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := p.Import(ctx, s.b.Node(), s.b.PID(), gone.ID())
			if err != nil {
				t.Fatal(err)
			}
			for i := vmmc.ProxyAddr(0); i < size; i += 4 {
				if a := again.Addr(); stale+i >= a && stale+i < a+size {
					t.Fatal("the addresses of a closed import were given out again")
				}
			}
			for what, c := range map[string]struct {
				addr vmmc.ProxyAddr
				n    int
				want error
			}{
				"nowhere":                    {0, 4, vmmc.ErrBadProxyAddr},
				"at the end of all":          {^vmmc.ProxyAddr(3), 4, vmmc.ErrBadProxyAddr},
				"before an import":           {s.im.Addr() - 4, 8, vmmc.ErrBadProxyAddr},
				"behind an import":           {im8.Addr() + size, 4, vmmc.ErrBadProxyAddr},
				"over the end":               {im8.Addr() + size - 4, 8, vmmc.ErrBadProxyAddr},
				"from one into the next":     {s.im.Addr() + 4, int(im8.Addr()-s.im.Addr()) + 4, vmmc.ErrBadProxyAddr},
				"a closed import":            {stale, 4, vmmc.ErrBadProxyAddr},
				"in the middle of a word":    {addr + 2, 4, vmmc.ErrBadAlignment},
				"not a whole number of them": {addr, 6, vmmc.ErrBadAlignment},
				"nothing":                    {addr, 0, vmmc.ErrBadSize},
			} {
				b := make([]byte, c.n)
				_, async := p.SendAsync(ctx, b, c.addr)
				_, asyncNotify := p.SendNotifyAsync(ctx, b, c.addr)
				_, asyncGet := p.GetAsync(ctx, b, c.addr)
				for call, err := range map[string]error{
					"Send": p.Send(ctx, b, c.addr), "SendNotify": p.SendNotify(ctx, b, c.addr), "Get": p.Get(ctx, b, c.addr),
					"SendAsync": async, "SendNotifyAsync": asyncNotify, "GetAsync": asyncGet,
				} {
					if !errors.Is(err, c.want) {
						t.Errorf("%s, %s: %v, want %v", call, what, err, c.want)
					}
				}
			}
		})
	}
}

func TestDestSpaceIsUsedUp(t *testing.T) {
	s := exported(t, "mapped")
	ctx := within(t)
	vmmc.UseUpDestSpace(s.a, 2*size)
	im, err := s.a.Import(ctx, s.b.Node(), s.b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.a.Send(ctx, word, im.Addr()); err != nil {
		t.Error(err)
	}
	if err := im.Close(); err != nil { // gives nothing back
		t.Fatal(err)
	}
	if _, err := s.a.Import(ctx, s.b.Node(), s.b.PID(), 7); !errors.Is(err, vmmc.ErrNoVirtDestSpace) {
		t.Errorf("no addresses are left: %v", err)
	}
	if err := s.im.Send(ctx, word, 0); err != nil {
		t.Errorf("the imports there were: %v", err)
	}
}

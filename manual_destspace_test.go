package vmmc_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
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
			var d manual.DestSpace
			add := func(im *vmmc.Import) manual.ProxyAddr {
				a, err := d.Add(im)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			first, addr, second := add(s.im), add(im8), add(twice)
			for i, send := range []func() error{
				func() error { return d.Send(ctx, w32(1), addr) },
				func() error { return d.SendNotify(ctx, w32(2), addr+4) },
				func() error { return d.Send(ctx, w32(3), addr+size-4) },
				func() error { return d.Send(ctx, w32(4), second+8) },
				func() error {
					r, err := d.SendAsync(ctx, w32(5), addr+12)
					if err == nil {
						err = r.Wait(ctx)
					}
					return err
				},
				func() error {
					r, err := d.SendNotifyAsync(ctx, w32(6), addr+16)
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
			if err := d.Get(ctx, got, addr); err != nil {
				t.Error(err)
			}
			want := bytes.Join([][]byte{w32(1), w32(2), w32(4), w32(5), w32(6)}, nil)
			if !bytes.Equal(got[:20], want) || !bytes.Equal(got[size-4:], w32(3)) || !bytes.Equal(got, exp8.Bytes()) {
				t.Errorf("the buffer begins with %x", got[:20])
			}
			if r, err := d.GetAsync(ctx, got[:8], addr+4); err != nil || r.Wait(ctx) != nil || !bytes.Equal(got[:8], want[4:12]) {
				t.Errorf("%x, %v", got[:8], err)
			}
			if im, off, err := d.Lookup(addr + 100); im != im8 || off != 100 || err != nil {
				t.Errorf("looked up: %v at %d, %v", im, off, err)
			}

			gone, old := s.another(t, 9)
			stale := add(old)
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			_, begun := d.SendAsync(ctx, word, stale)
			for call, err := range map[string]error{"Send": d.Send(ctx, word, stale), "Get": d.Get(ctx, make([]byte, 4), stale), "SendAsync": begun} {
				if !errors.Is(err, vmmc.ErrClosed) {
					t.Errorf("%s at a closed import that has a range: %v", call, err)
				}
			}
			d.Remove(old)
			again, err := p.Import(ctx, s.b.Node(), s.b.PID(), gone.ID())
			if err != nil {
				t.Fatal(err)
			}
			a := add(again)
			for i := manual.ProxyAddr(0); i < size; i += 4 {
				if stale+i >= a && stale+i < a+size {
					t.Fatal("the addresses of a closed import were given out again")
				}
			}
			for what, c := range map[string]struct {
				addr manual.ProxyAddr
				n    int
				want error
			}{
				"nowhere":                    {0, 4, vmmc.ErrBadProxyAddr},
				"at the end of all":          {^manual.ProxyAddr(3), 4, vmmc.ErrBadProxyAddr},
				"before an import":           {first - 4, 8, vmmc.ErrBadProxyAddr},
				"behind an import":           {addr + size, 4, vmmc.ErrBadProxyAddr},
				"over the end":               {addr + size - 4, 8, vmmc.ErrBadProxyAddr},
				"from one into the next":     {first + 4, int(addr-first) + 4, vmmc.ErrBadProxyAddr},
				"a removed import":           {stale, 4, vmmc.ErrBadProxyAddr},
				"in the middle of a word":    {addr + 2, 4, vmmc.ErrBadAlignment},
				"not a whole number of them": {addr, 6, vmmc.ErrBadAlignment},
				"nothing":                    {addr, 0, vmmc.ErrBadSize},
			} {
				b := make([]byte, c.n)
				_, async := d.SendAsync(ctx, b, c.addr)
				_, asyncNotify := d.SendNotifyAsync(ctx, b, c.addr)
				_, asyncGet := d.GetAsync(ctx, b, c.addr)
				for call, err := range map[string]error{
					"Send": d.Send(ctx, b, c.addr), "SendNotify": d.SendNotify(ctx, b, c.addr), "Get": d.Get(ctx, b, c.addr),
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

package vmmc_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
)

func TestSendV(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, 2<<20)
			ctx := within(t)
			all := pattern(2<<20-8, 5)
			for i, cuts := range [][]int{
				{len(all)},
				{0, 4, 4, 8, 400, len(all)},
				{64 << 10, 64<<10 + 4, 300 << 10, 300 << 10, 1 << 20, len(all)},
				{0, 0, 4, 4},
				{4, 400, 444, 448, 4000, 65536},
			} {
				var pieces [][]byte
				from := 0
				for _, c := range cuts {
					pieces = append(pieces, all[from:c])
					from = c
				}
				clear(s.exp.Bytes())
				if err := s.im.SendV(ctx, pieces, 8); err != nil {
					t.Fatal(err)
				}
				if err := s.im.Fence(ctx); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(s.exp.Bytes()[8:8+from], all[:from]) {
					t.Errorf("%d: contents differ", i)
				}
			}
			for what, c := range map[string]struct {
				err, want error
			}{
				"nothing":       {s.im.SendV(ctx, nil, 0), vmmc.ErrBadSize},
				"empty pieces":  {s.im.SendV(ctx, [][]byte{nil, nil}, 0), vmmc.ErrBadSize},
				"odd pieces":    {s.im.SendV(ctx, [][]byte{all[:2], all[:2]}, 0), vmmc.ErrBadAlignment},
				"too much":      {s.im.SendV(ctx, [][]byte{all, all[:4]}, 8), vmmc.ErrBadProxyAddr},
				"an odd offset": {s.im.SendV(ctx, [][]byte{all[:4]}, 2), vmmc.ErrBadAlignment},
			} {
				if !errors.Is(c.err, c.want) {
					t.Errorf("%s: %v, want %v", what, c.err, c.want)
				}
			}
		})
	}
}

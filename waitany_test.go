package vmmc_test

import (
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// Words of several exports are waited for at once.
func TestWaitAny(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			ctx := within(t)
			ims := []*vmmc.Import{s.im}
			var ws []vmmc.Watch
			for i := range 3 {
				e := s.exp
				if i > 0 {
					var im *vmmc.Import
					e, im = s.another(t, uint32(20+i))
					ims = append(ims, im)
				}
				w, err := e.Word(16)
				if err != nil {
					t.Fatal(err)
				}
				w.Store(0)
				ws = append(ws, vmmc.Watch{Word: w})
			}
			for _, i := range []int{2, 0, 1, 1} {
				if err := ims[i].Send(ctx, w32(ws[i].Old+1), 16); err != nil {
					t.Fatal(err)
				}
				got, err := s.b.WaitAny(ctx, ws...)
				if got != i || err != nil {
					t.Fatalf("word %d changed, not %d: %v", got, i, err)
				}
				ws[i].Old++
			}
			if _, err := s.b.WaitAny(ctx); !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("nothing to wait for: %v", err)
			}
		})
	}
}

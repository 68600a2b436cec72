package vmmc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
)

// The calls of the data path allocate nothing, with the peer in this process and
// serving it counted too; a GetAsync keeps its answer in one object.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	if invariant.Enabled {
		t.Skip("the checks allocate")
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, 1<<20)
			ctx := within(t)
			small, large := make([]byte, 64), make([]byte, 200<<10)
			var r vmmc.Request
			space, addr := inDestSpace(t, s.im)
			for name, c := range map[string]struct {
				call func() error
				most float64
			}{
				"SendAsync and Status": {func() (err error) {
					if r, err = s.im.SendAsync(ctx, small, 0); err == nil {
						err = r.Wait(ctx)
					}
					if err == nil {
						err = r.Status()
					}
					return err
				}, 0},
				"a long SendAsync": {func() (err error) {
					if r, err = s.im.SendAsync(ctx, large, 0); err == nil {
						err = r.Wait(ctx)
					}
					return err
				}, 4},
				"SendAsync to an address": {func() (err error) {
					if r, err = space.SendAsync(ctx, small, addr); err == nil {
						err = r.Wait(ctx)
					}
					return err
				}, 0},
				"GetAsync": {func() (err error) {
					if r, err = s.im.GetAsync(ctx, small, 0); err == nil {
						err = r.Wait(ctx)
					}
					return err
				}, 1},
				"Send to an address": {func() error { return space.Send(ctx, small, addr) }, 0},
				"Process.Fence": {func() error {
					err := s.im.Send(ctx, small, 0)
					return errors.Join(err, s.a.Fence(ctx))
				}, 0},
				"FetchAdd64":             {func() error { _, err := s.im.FetchAdd64(ctx, 0, 1); return err }, 0},
				"SendV":                  {func() error { return s.im.SendV(ctx, [][]byte{small, small}, 0) }, 0},
				"a SendV of 48 KiB":      {func() error { return s.im.SendV(ctx, [][]byte{small, large[:48<<10], small}, 0) }, 0},
				"a long SendV":           {func() error { return s.im.SendV(ctx, [][]byte{small, large, small}, 0) }, 0},
				"SendSignal":             {func() error { return s.im.SendSignal(ctx, small, 0, 1, 64) }, 0},
				"a SendSignal of 48 KiB": {func() error { return s.im.SendSignal(ctx, large[:48<<10], 0, 1, 48<<10) }, 0},
				"a long SendSignal":      {func() error { return s.im.SendSignal(ctx, large, 0, 1, 200<<10) }, 0},
				"SendNotify":             {func() error { return s.im.SendNotify(ctx, small, 0) }, 0},
				"Fence":                  {func() error { return s.im.Fence(ctx) }, 0},
			} {
				var err error
				for range 10 {
					if err = c.call(); err != nil {
						t.Fatal(name, err)
					}
				}
				n := testing.AllocsPerRun(200, func() {
					if e := c.call(); e != nil {
						err = e
					}
				})
				if err != nil || n > c.most {
					t.Errorf("%s: %v allocations, at most %v: %v", name, n, c.most, err)
				}
			}
		})
	}
}

// Nor do the calls and waits of a message's way, sender and receiver taken together.
func TestHotPathAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	if invariant.Enabled {
		t.Skip("the checks allocate")
	}
	ctx := within(t)
	p, err := newHotPair(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, c := range p.hotPaths(ctx) {
		n := testing.AllocsPerRun(200, func() {
			if c.Before != nil && err == nil {
				err = c.Before()
			}
			if err == nil {
				err = c.Run()
			}
		})
		most := 0.0
		if strings.Contains(c.Name, "GetAsync") { // its request has memory of its own
			most = 1
		}
		if err != nil || n > most {
			t.Errorf("%s: %v allocations, at most %v: %v", c.Name, n, most, err)
		}
	}
}

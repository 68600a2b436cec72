package vmmc_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Long requests of many goroutines, of which some wait at once, some later, some for others, some ask, and some sleep until somebody
// else's have arrived, are all over, each with what it was of.
func TestLongRequestsOfMany(t *testing.T) {
	const (
		many  = 4
		part  = 1 << 20
		turns = 60
	)
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, many*part)
			ctx := within(t)
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(9, uint64(i)))
					src, got := make([]byte, part), make([]byte, part)
					for turn := byte(1); turn <= turns && !t.Failed(); turn++ {
						n := (70<<10 + rng.IntN(part-70<<10)) &^ 7
						for j := range src[:n] {
							src[j] = turn
						}
						if err := longRequest(ctx, s, src[:n], got[:n], i*part, rng); err != nil {
							t.Errorf("turn %d of goroutine %d: %v", turn, i, err)
						}
						if !bytes.Equal(got[:n], src[:n]) {
							t.Errorf("turn %d of goroutine %d has got what it had not sent", turn, i)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// longRequest sends src to off and gets it back, and comes for both in one of many ways.
func longRequest(ctx context.Context, s *buffers, src, got []byte, off int, rng *rand.Rand) error {
	put, err := s.im.SendAsync(ctx, src, off)
	if err != nil {
		return err
	}
	var get vmmc.Request
	if rng.IntN(3) > 0 {
		get, err = s.im.GetAsync(ctx, got, off)
	} else {
		err = s.im.Get(ctx, got, off) // which waits for what was put off
	}
	if err != nil {
		return err
	}
	switch rng.IntN(5) {
	case 0:
		time.Sleep(time.Millisecond)
	case 1:
		for err = put.Status(); errors.Is(err, vmmc.ErrInProgress); err = put.Status() {
			time.Sleep(10 * time.Microsecond)
		}
	case 2:
		err = s.im.Fence(ctx)
	case 3:
		short, stop := context.WithTimeout(ctx, 20*time.Microsecond)
		if err = put.Wait(short); errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		stop()
	}
	if err == nil && !errors.Is(get.Status(), vmmc.ErrBadAsyncHandle) {
		err = get.Wait(ctx)
	}
	return errors.Join(err, put.Wait(ctx))
}

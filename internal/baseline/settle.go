package baseline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Two processes that have just woken each other are often on one processor, and
// stay there until the kernel balances its load. Settling waits for that.
const (
	settled    = 1500 * time.Nanosecond // a round trip that takes less was between processors
	settleRuns = 100                    // as many of them in a row
	settleStop = 1<<32 - 1
	maxSettle  = 60 * time.Millisecond
)

// Settle passes a flag to the other process, which calls [Memory.Follow], until both
// run on processors of their own, for so long as the kernel may take to see to it.
func (m *Memory) Settle(ctx context.Context) error {
	out, in := m.own(m.out), m.own(m.in)
	begin := time.Now()
	for v, quick := uint32(1), 0; quick < settleRuns && time.Since(begin) < maxSettle; v++ {
		start := time.Now()
		out.Store(v)
		if err := spin(ctx, in, v); err != nil {
			return err
		}
		if quick++; time.Since(start) > settled {
			quick = 0
		}
	}
	out.Store(settleStop)
	return spin(ctx, in, settleStop)
}

// Follow is the other side of Settle. ready is called when it may begin.
func (m *Memory) Follow(ctx context.Context, ready func() error) error {
	out, in := m.own(m.out), m.own(m.in)
	last := in.Load() // of the time before
	if err := ready(); err != nil {
		return err
	}
	for {
		was := last
		err := spinUntil(ctx, func() bool {
			last = in.Load()
			return last != was
		})
		if err != nil {
			return err
		}
		if out.Store(last); last == settleStop {
			return nil
		}
	}
}

// own is the word for settling, behind all that messages reach: one that comes
// early does not touch it.
func (m *Memory) own(
	r *shm.Region,
) *atomic.Uint32 {
	return shm.Word(r.Bytes(), r.Size()-shm.WordSize)
}

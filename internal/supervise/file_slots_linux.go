package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// fileSlots bound the goroutines in file operations, which may hang and hold a thread each. Orders
// beyond the slots may proceed one by one while many more threads are allowed: they may be for a
// program on another drive than the hanging ones.
type fileSlots struct {
	orders *semaphore.Semaphore
	logs   *semaphore.Semaphore

	spareThreads func() int
	exceeding    chan struct{} // holds an element for slotWait after an order proceeded without a slot
}

const slotWait = 50 * time.Millisecond

// newFileSlots returns as many slots as a process with so many idle threads can have.
func newFileSlots(idle int, room func() int) fileSlots {
	n := max(idle-otherThreads, 2)
	l := min(logs, max(1, n*logs/(orders+logs)))
	return fileSlots{orders: semaphore.New(min(orders, n-l)), logs: semaphore.New(l), spareThreads: room, exceeding: make(chan struct{}, 1)}
}

// acquireOrder waits for a slot until ctx ends or over is closed. The caller calls leave.
func (p *fileSlots) acquireOrder(
	ctx context.Context, over <-chan struct{},
) (leave func(), err error) {
	for {
		short, stop := context.WithTimeout(ctx, slotWait)
		err := p.orders.AcquireUntil(short, over)
		stop()
		switch {
		case err == nil:
			return p.orders.Release, nil
		case errors.Is(err, semaphore.ErrStopped):
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case p.mayExceed():
			return func() {}, nil
		}
	}
}

// mayExceed reports whether one order may proceed without a slot. The next one may only after
// slotWait, when the thread of this one is counted.
func (p *fileSlots) mayExceed() bool {
	select {
	case p.exceeding <- struct{}{}:
	default:
		return false
	}
	if p.spareThreads() < minSpareThreads {
		<-p.exceeding
		return false
	}
	time.AfterFunc(slotWait, func() { <-p.exceeding })
	return true
}

package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// fileSlots are for those who are at files. More orders than there are places for may go on one by one where there
// is room for many more threads: they may be for a program on another drive than those that hang.
type fileSlots struct {
	orders *semaphore.Semaphore
	logs   *semaphore.Semaphore

	spareThreads func() int
	exceeding    chan struct{} // full for a while after one has gone on without a place
}

const slotWait = 50 * time.Millisecond

// newFileSlots makes as many as a process with so many idle threads can have.
func newFileSlots(idle int, room func() int) fileSlots {
	n := max(idle-otherThreads, 2)
	l := min(logs, max(1, n*logs/(orders+logs)))
	return fileSlots{orders: semaphore.New(min(orders, n-l)), logs: semaphore.New(l), spareThreads: room, exceeding: make(chan struct{}, 1)}
}

// acquireOrder waits for a place, until ctx ends or over is closed. The place is to be left.
func (p *fileSlots) acquireOrder(ctx context.Context, over <-chan struct{}) (leave func(), err error) {
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

// mayExceed says whether one more may go on without a place. The next is asked about when that one's thread is counted.
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

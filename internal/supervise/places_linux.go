package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// places are for those who are at files. More orders than there are places for may go on one by one where there
// is room for many more threads: they may be for a program on another drive than those that hang.
type places struct {
	orders *semaphore.Semaphore
	logs   *semaphore.Semaphore

	room  func() int
	extra chan struct{} // full for a while after one has gone on without a place
}

const patience = 50 * time.Millisecond

// newPlaces makes as many as a process with so many idle threads can have.
func newPlaces(idle int, room func() int) places {
	n := max(idle-others, 2)
	l := min(logs, max(1, n*logs/(orders+logs)))
	return places{orders: semaphore.New(min(orders, n-l)), logs: semaphore.New(l), room: room, extra: make(chan struct{}, 1)}
}

// order waits for a place, until ctx ends or over is closed. The place is to be left.
func (p *places) order(ctx context.Context, over <-chan struct{}) (leave func(), err error) {
	for {
		short, stop := context.WithTimeout(ctx, patience)
		err := p.orders.AcquireUntil(short, over)
		stop()
		switch {
		case err == nil:
			return p.orders.Release, nil
		case errors.Is(err, semaphore.ErrStopped):
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case p.another():
			return func() {}, nil
		}
	}
}

// another says whether one more may go on without a place. The next is asked about when that one's thread is counted.
func (p *places) another() bool {
	select {
	case p.extra <- struct{}{}:
	default:
		return false
	}
	if p.room() < plenty {
		<-p.extra
		return false
	}
	time.AfterFunc(patience, func() { <-p.extra })
	return true
}

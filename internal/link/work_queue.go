package link

import (
	"sync"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// workQueue lists what has work that is left to waiters, and has a timer that brings the background
// goroutine where no waiter comes. The timer is in the epoll set: the goroutine that takes events
// off the set sees it, and setting it wakes no thread.
type workQueue[T any] struct {
	ep *unix.Epoll
	id uint64 // Identifies the timer's events.

	mu    sync.Mutex
	list  []T
	spare []T // Memory for the next list.
	// nil before open, and if there can be none.
	timer  *unix.Timer
	closed bool
}

func (q *workQueue[T]) init(ep *unix.Epoll, id uint64) { q.ep, q.id = ep, id }

// open makes the timer unless there is one. It fails where descriptors have run out. The caller
// holds mu. Its callers have open, stop and takeAll inlined.
func (q *workQueue[T]) open() error {
	if q.timer != nil && !q.closed {
		return nil
	}
	return q.makeTimer()
}

func (q *workQueue[T]) makeTimer() error {
	if q.closed {
		return ErrClosed
	}
	t, err := unix.NewTimer()
	if err != nil {
		return err
	}
	if err := q.ep.Add(t.Descriptor(), q.id, false); err != nil {
		t.Close()
		return err
	}
	q.timer = t
	return nil
}

// takeSpare returns memory for a list; recycle gives it back. The caller holds mu.
func (q *workQueue[T]) takeSpare() []T {
	m := q.spare
	q.spare = nil
	return m
}

// takeAll empties the list and returns it, for recycle. The caller holds mu.
func (q *workQueue[T]) takeAll() []T {
	all := q.list
	q.list = q.takeSpare()
	return all
}

// stop stops the timer: an expired one would raise another event at once. The caller holds mu.
func (q *workQueue[T]) stop() {
	if !q.closed {
		q.timer.Set(0)
	}
}

// recycle takes back the memory of a list whose work is done.
func (q *workQueue[T]) recycle(list []T) {
	clear(list)
	q.mu.Lock()
	q.spare = list[:0]
	q.mu.Unlock()
}

// rearm ends the handling of the timer's event: until then no other one comes. The caller holds mu.
func (q *workQueue[T]) rearm() {
	if !q.closed {
		_ = q.ep.Arm(q.timer.Descriptor(), q.id, false)
	}
}

// close is called when there are no links any more.
func (q *workQueue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Close()
	}
}

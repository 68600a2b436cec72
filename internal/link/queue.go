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

// stop stops the timer: an expired one would raise another event at once. open has
// succeeded. The caller holds mu.
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

// rearm ends the handling of the timer's event: until then no other one comes. open has
// succeeded. The caller holds mu.
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

// fifo is a queue that reuses its memory: in the steady state it allocates nothing, and popping
// from a long queue moves nothing.
type fifo[T any] struct {
	items []T
	head  int // Index of the oldest item.
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	// otherwise moving the items would be most of the work
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// at returns the i-th oldest item, valid until the next push or pop.
func (f *fifo[T]) at(i int) *T { return &f.items[f.head+i] }

func (f *fifo[T]) pop() {
	var none T
	f.items[f.head] = none
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
}

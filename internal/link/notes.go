package link

import (
	"sync"
)

// noteQueue runs notification handlers on a goroutine of its own, one at a
// time for the whole process: never under a token nor on the goroutine that
// serves links, so that a handler may wait for a Get on the very link that
// notified it.
type noteQueue struct {
	mu     sync.Mutex
	more   *sync.Cond
	links  []*In // that may have notifications, each at most once
	closed bool
}

func (q *noteQueue) init() { q.more = sync.NewCond(&q.mu) }

// add queues a link. in.queued says whether it is in the queue already; it is
// cleared before the link is drained, so a note that comes meanwhile queues it
// again.
func (q *noteQueue) add(in *In) {
	if !in.queued.CompareAndSwap(false, true) {
		return
	}
	q.mu.Lock()
	q.links = append(q.links, in)
	q.mu.Unlock()
	q.more.Signal()
}

func (q *noteQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.more.Signal()
}

func (q *noteQueue) run() {
	for {
		q.mu.Lock()
		for len(q.links) == 0 && !q.closed {
			q.more.Wait()
		}
		if q.closed {
			q.mu.Unlock()
			return
		}
		in := q.links[0]
		q.links = append(q.links[:0], q.links[1:]...)
		q.mu.Unlock()
		in.queued.Store(false)
		if in.deliver() {
			q.add(in) // others first
		}
	}
}

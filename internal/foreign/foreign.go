// Package foreign closes descriptors that another process had a hand in.
//
// Closing one may take as long as its sender likes: a TCP socket lingers (SO_LINGER) over what it
// has not sent, and a file system in user space (FUSE) may never answer. So no engine, no handler
// of requests and no holder of a lock closes a foreign descriptor itself. It gives it to [Close],
// which returns at once. A few goroutines, each of which may cost a thread, do the closing. A
// [Source] is the sender of descriptors: a user, or a peer. It has at most [maxPerSource] of them,
// so that a source that makes closing slow delays itself alone.
//
// Memory and pipes are closed at once, and so is what no source is known of: it is this process's
// own.
package foreign

import (
	"context"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// How many goroutines close at a time.
const (
	maxPerSource = 2
	maxClosers   = 64
)

// A Source is a sender of descriptors. All of its methods may be called concurrently, and on nil,
// which is a trusted source: its descriptors are closed at once.
type Source struct {
	key string

	// Guarded by pool.mu.
	refs     int // of From, less those of Release
	held     int // open descriptors, without those given to an owner that closes them at once
	queue    []func()
	closing  int           // goroutines
	queued   bool          // in pool.waiting
	heldLess chan struct{} // closed when held becomes less; nil: no waiter

	recvMu sync.Mutex // see Receive; before pool.mu
}

var pool = struct {
	mu      sync.Mutex
	owner   map[int]*Source
	sources map[string]*Source
	closing int
	// That have something to close, and no goroutine for lack of them in all; the oldest first.
	waiting []*Source
	idle    chan struct{}
}{owner: map[int]*Source{}, sources: map[string]*Source{}}

// From gives the source of a name, which stays the same while it is in use or has open descriptors.
// Its user calls Release.
func From(name string) *Source {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	s := pool.sources[name]
	if s == nil {
		s = &Source{key: name}
		pool.sources[name] = s
	}
	s.refs++
	return s
}

// Release ends what From began.
func (s *Source) Release() {
	if s == nil {
		return
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	s.refs--
	s.dropIfUnused()
}

// dropIfUnused is called with pool.mu.
func (s *Source) dropIfUnused() {
	if s.refs == 0 && s.held == 0 && s.closing == 0 && len(s.queue) == 0 && pool.sources[s.key] == s {
		delete(pool.sources, s.key)
	}
}

// Took notes descriptors that have come from the source. One that another source is known of is
// this one's from now on.
func (s *Source) Took(fds ...int) {
	if s == nil || len(fds) == 0 {
		return
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for _, fd := range fds {
		if fd < 0 {
			continue
		}
		disown(fd)
		pool.owner[fd] = s
		s.held++
	}
}

// disown gives the source of fd, which has it no more; pool.mu is held.
func disown(fd int) *Source {
	s := pool.owner[fd]
	if s == nil {
		return nil
	}
	delete(pool.owner, fd)
	s.uncount()
	return s
}

// uncount is called with pool.mu.
func (s *Source) uncount() {
	s.held--
	if s.heldLess != nil {
		close(s.heldLess)
		s.heldLess = nil
	}
	s.dropIfUnused()
}

// Own records that a descriptor was checked to be memory: closing it does not block.
func Own(fd int) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	disown(fd)
}

// Dup duplicates a descriptor, for the same source.
func Dup(fd int) (int, error) {
	pool.mu.Lock()
	s := pool.owner[fd]
	pool.mu.Unlock()
	dup, err := unix.Dup(fd)
	if err == nil {
		s.Took(dup)
	}
	return dup, err
}

// Close closes descriptors and does not wait. Negative ones are none.
func Close(fds ...int) {
	for _, fd := range fds {
		if fd < 0 {
			continue
		}
		pool.mu.Lock()
		s := pool.owner[fd]
		if s == nil {
			pool.mu.Unlock()
			_ = unix.Close(fd)
			continue
		}
		delete(pool.owner, fd) // before the number is another file's
		pool.mu.Unlock()
		if unix.ClosesAtOnce(fd) {
			_ = unix.Close(fd)
			pool.mu.Lock()
			s.uncount()
			pool.mu.Unlock()
			continue
		}
		s.enqueue(func() {
			_ = unix.Close(fd)
			pool.mu.Lock()
			s.uncount()
			pool.mu.Unlock()
		})
	}
}

// Disconnect is [Close] of a unix socket whose connection ends with it, whatever other descriptors
// of the socket there are. The far end reads the end at once. A socket in whose queue no
// descriptors wait is closed at once: else it would wait for a goroutine, and slow sources may have
// them all.
func Disconnect(fd int) {
	unix.Shutdown(fd)
	if !unix.NoRightsQueued(fd) {
		Close(fd)
		return
	}
	Own(fd)
	_ = unix.Close(fd)
}

// Do has f run where the source's descriptors are closed, and does not wait. f closes something
// that may take long.
func (s *Source) Do(f func()) {
	if s == nil {
		f()
		return
	}
	s.enqueue(f)
}

func (s *Source) enqueue(f func()) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	s.queue = append(s.queue, f)
	s.startCloser()
}

// startCloser has one more goroutine close for the source, if there may be one; pool.mu is held.
func (s *Source) startCloser() {
	switch {
	case s.closing >= maxPerSource || len(s.queue) == 0:
	case pool.closing < maxClosers:
		pool.closing++
		s.closing++
		go runCloser(s)
	case s.closing == 0 && !s.queued:
		s.queued = true
		pool.waiting = append(pool.waiting, s)
	}
}

// runCloser closes what s has to close. Where others wait, each has its turn.
func runCloser(s *Source) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for {
		for len(s.queue) > 0 {
			if s.closeOldest(); len(pool.waiting) > 0 {
				break
			}
		}
		s.closing--
		if len(s.queue) > 0 && s.closing == 0 && !s.queued {
			s.queued = true
			pool.waiting = append(pool.waiting, s)
		}
		s.dropIfUnused()
		if s = nextWaiting(); s == nil {
			break
		}
		s.closing++
	}
	if pool.closing--; pool.closing == 0 && pool.idle != nil {
		close(pool.idle)
		pool.idle = nil
	}
}

// nextWaiting takes the source that has waited longest; pool.mu is held.
func nextWaiting() *Source {
	for len(pool.waiting) > 0 {
		s := pool.waiting[0]
		pool.waiting = pool.waiting[1:]
		if s.queued = false; s.closing < maxPerSource {
			return s
		}
	}
	return nil
}

// closeOldest closes the oldest; pool.mu is held, and not meanwhile.
func (s *Source) closeOldest() {
	f := s.queue[0]
	s.queue[0] = nil
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
	}
	pool.mu.Unlock()
	f()
	pool.mu.Lock()
}

// Held is how many descriptors of the source are open.
func (s *Source) Held() int {
	if s == nil {
		return 0
	}
	pool.mu.Lock()
	defer pool.mu.Unlock()
	return s.held
}

// Receive makes receive calls for descriptors of a source one after another, so that a source never
// has more open than most and what one call brings. f receives and returns the descriptors. It is
// not called, and Receive reports false, while the source has most or more open: see [Source.Wait].
// most 0 is without bound.
func (s *Source) Receive(most int, f func() []int) bool {
	if s == nil {
		f()
		return true
	}
	s.recvMu.Lock()
	defer s.recvMu.Unlock()
	if most > 0 && s.Held() >= most {
		return false
	}
	s.Took(f()...)
	return true
}

// Wait waits until the source has fewer than most descriptors open.
func (s *Source) Wait(ctx context.Context, most int) error {
	for {
		pool.mu.Lock()
		if s.held < most {
			pool.mu.Unlock()
			return nil
		}
		if s.heldLess == nil {
			s.heldLess = make(chan struct{})
		}
		fewer := s.heldLess
		pool.mu.Unlock()
		select {
		case <-fewer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Settle waits until all is closed that was given to Close, but not for longer than d: it is for a
// program that ends, so that descriptors that close quickly are closed.
func Settle(d time.Duration) {
	pool.mu.Lock()
	if pool.closing == 0 {
		pool.mu.Unlock()
		return
	}
	if pool.idle == nil {
		pool.idle = make(chan struct{})
	}
	idle := pool.idle
	pool.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

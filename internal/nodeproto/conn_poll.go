package nodeproto

import (
	"context"
	"runtime"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// pollTime is for how long an answer is looked for before its asker sleeps: longer than one takes that is given at once
// by a daemon and another process, each of which has to be woken.
const pollTime = 400 * time.Microsecond

// AskPolling is [Ask] of what the other end does not wait with, by one who is in a hurry: it looks for the answer before it
// sleeps, which saves waking it. It serves whatever else comes meanwhile, as the reader does; two packets
// that come close to each other may change places by that, so it is for the end that nobody sends what depends
// on order.
func AskPolling[T any](ctx context.Context, l *Conn, m Method, in any, fds []int) (v T, got []int, err error) {
	return callDecoded[T](ctx, l, m, in, fds, true)
}

// poll returns when ch has an answer, or it is time to sleep.
func (l *Conn) poll(ch <-chan answer) {
	// With one processor who is to answer may be in this program; and one that looks takes what others wait for, too.
	if runtime.GOMAXPROCS(0) == 1 || !l.pollMu.TryLock() {
		return
	}
	defer l.pollMu.Unlock()
	c, err := l.c.SyscallConn()
	if err != nil || !l.registerPoller() {
		return
	}
	defer l.wg.Done()
	r := recvBuffers.Get().(*recvBuffer)
	defer recvBuffers.Put(r)
	for start := time.Now(); len(ch) == 0 && time.Since(start) < pollTime; {
		var a arrival
		var ok bool
		if err := c.Control(func(fd uintptr) { a, ok, _ = l.recvOne(int(fd), r) }); err != nil {
			l.fail(err)
			return
		}
		if !ok {
			unix.Yield()
			continue
		}
		if err := l.handleArrival(r, a); err != nil {
			l.fail(err)
			return
		}
	}
}

// registerPoller says whether the connection is there, and has its end wait for the caller, who says when
// it is done: requests that it takes are begun before that.
func (l *Conn) registerPoller() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.wg.Add(1)
	return true
}

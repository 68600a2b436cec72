package nodeproto

import (
	"context"
	"runtime"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// pollTime is how long a caller polls for its answer before it sleeps: longer than an immediate
// answer takes that involves a daemon and another process, each of which must be woken.
const pollTime = 400 * time.Microsecond

// AskPolling is [Ask] for requests that the peer answers at once. It polls for the answer before it
// sleeps, which saves a wake-up. It also handles other packets that arrive, as the reader does; two
// packets that arrive close together may be handled out of order, so it must be used only by the
// end whose peer sends nothing that depends on order.
func AskPolling[T any](
	ctx context.Context, l *Conn, m Method, in any, fds []int,
) (v T, got []int, err error) {
	return callDecoded[T](ctx, l, m, in, fds, true)
}

// poll returns when ch has an answer or pollTime is over.
func (l *Conn) poll(ch <-chan answer) {
	// With one processor the answering goroutine may be in this program. One poller is enough: it
	// also delivers answers for other callers.
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

// registerPoller reports whether the connection is alive, and makes its end wait for the caller,
// which calls wg.Done: requests that the poller receives have been started by then.
func (l *Conn) registerPoller() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.wg.Add(1)
	return true
}

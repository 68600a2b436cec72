package vmmc

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// InHandler reports whether the caller runs in a handler of notifications or events ([WithEvents],
// [Process.Subscribe]), of any process of this program. What must not be called there, see
// [WithHandler], fails with [ErrNotInHandler]. A library built on this package asks it before it
// waits by other means.
func InHandler() bool { return link.InHandler() }

// BlockNotifications keeps notification handlers, and those of events ([WithEvents],
// [Process.Subscribe]), from running until [Process.UnblockNotifications] was called as
// often (vmmc_BlockNotifications). When it returns, none is running: it waits for
// one that is, which therefore must not wait for the caller. Notifications that
// arrive meanwhile are queued and delivered afterwards, each sender's in order. Data
// is not delayed. Each sender runs out of credits after 64 notifications. Its next
// one waits until its context ends or notifications are delivered again: a process
// that keeps them blocked until such a sender goes on waits for ever.
//
// It may be called in a handler, where it must be paired: levels that a handler
// leaves are the process's when it returns.
func (p *Process) BlockNotifications() { p.engine.Block() }

// UnblockNotifications undoes one [Process.BlockNotifications]
// (vmmc_UnblockNotifications) and returns how many levels are left: with 0
// notifications are delivered, now or already. In a handler, where one level is
// always left, taking that one is [ErrNotInHandler]. A loop that unblocks
// whatever the level:
//
//	for {
//		if n, err := p.UnblockNotifications(); n == 0 || err != nil {
//			break
//		}
//	}
func (p *Process) UnblockNotifications() (remaining int, err error) {
	remaining, err = p.engine.Unblock()
	if err != nil {
		return remaining, failf("unblock notifications", ErrNotInHandler,
			"notifications stay blocked while a handler runs")
	}
	return remaining, nil
}

// DiscardNotifications makes notifications of this buffer have no effect, or have one again. It is
// decided when a notification comes, and again when its turn comes: those that are queued are
// discarded too. The messages themselves arrive all the same, and while handlers of other buffers
// run or notifications are blocked the sender has its credits back.
func (e *Export) DiscardNotifications(on bool) { e.discard.Store(on) }

// Notified counts the notifications of this buffer whose handler has returned;
// discarded ones do not count.
func (e *Export) Notified() uint64 { return e.notified.Load() }

// WaitNotified waits until [Export.Notified] is not seen any more, and returns it: it suspends the
// goroutine until a particular buffer's notification was handled. Read Notified before looking at
// what the handler changes, and none is missed. While notifications are blocked, handlers of this
// buffer alone run for it, as sigsuspend lets a signal in: they overtake notifications of other
// buffers that wait. Errors: the context's, [ErrClosed] when the process is closed,
// [ErrBadRbufState] when the export is, [ErrNotInHandler].
func (e *Export) WaitNotified(ctx context.Context, seen uint64) (uint64, error) {
	if link.InHandler() {
		return seen, failf(e.waitOp(), ErrNotInHandler, "%v", ErrNotInHandler)
	}
	if ctx == nil {
		return seen, e.opError(e.waitOp(), errNilContext)
	}
	if n := e.notified.Load(); n != seen {
		return n, nil
	}
	l := wait.Cond{Until: func() bool { return e.notified.Load() != seen }, Ended: &e.closed, LocalOnly: true, NotArrivals: true}
	if err := e.p.engine.WaitNotification(ctx, e.serial, l); err != nil {
		return seen, e.opError(e.waitOp(), err)
	}
	if n := e.notified.Load(); n != seen {
		return n, nil
	}
	return seen, failf(e.waitOp(), ErrBadRbufState, "the export is closed")
}

func (e *Export) waitOp() string { return fmt.Sprintf("wait for a notification of buffer %d", e.id) }

// runHandler runs the export's handler for one notification of a process.
func (e *Export) runHandler(from ProcessID, off int, word uint32, at []byte) {
	if e.closed.Load() || e.discard.Load() {
		return
	}
	e.handler(Notification{Export: e, From: from, Offset: off, Word: word, At: at})
	e.notified.Add(1)
	e.p.engine.Wake()
}

// notificationsPending reports whether notifications of this export wait for the handler.
func (e *Export) notificationsPending() bool {
	if e.handler == nil || e.discard.Load() { // none will run
		return false
	}
	type target struct {
		in     *link.Responder
		handle uint32
	}
	e.p.memory.mu.Lock()
	var targets []target
	for h, g := range e.grants {
		if g.responder != nil {
			targets = append(targets, target{g.responder, h})
		}
	}
	e.p.memory.mu.Unlock()
	for _, tg := range targets {
		if tg.in.Pending(tg.handle) {
			return true
		}
	}
	return e.p.engine.HasQueued(e.serial)
}

package link

import (
	"bytes"
	"context"
	"errors"
	"runtime"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// redirectedSend is the redirection of one mapped message.
type redirectedSend struct {
	redirect.Claim
	// The source is another goroutine's memory, which may be unmapped.
	borrowed bool
	// The message, or its rest, was sent on the stream.
	byStream bool
}

// sendRedirected is Send to a redirectable export. What the receiver has posted a target for goes
// there, in ascending order; all else goes to the export. The caller has a credit for notify. If
// the message was sent on the stream, the credit is used or returned; otherwise the notification is
// left to the caller. borrowed says that another goroutine owns the source.
func (m *Mapped) sendRedirected(
	ctx context.Context, off int, src []byte, more [][]byte, notify, borrowed bool,
) (t redirectedSend, err error) {
	t.borrowed = borrowed
	if len(more) > 0 {
		src = append(bytes.Clone(src), bytes.Join(more, nil)...)
	}
	if err := endedIfStopped(m.Claims.AcquireUntil(ctx, m.Done)); err != nil {
		return t, err
	}
	defer m.Claims.Release()
	err = m.sendWithClaims(ctx, &t, off, src, notify, false)
	return t, err
}

// sendNotifyRedirected is SendNotify to a redirectable export, with the credit taken.
func (m *Mapped) sendNotifyRedirected(
	ctx context.Context, off int, src []byte, more [][]byte, borrowed bool,
) error {
	t, err := m.sendRedirected(ctx, off, src, more, true, borrowed)
	switch {
	case t.byStream: // with its notification and the credit
		return err
	case err != nil:
		m.req.untakeCredit(true) // no notification without its data
		return err
	}
	at := off + len(src)
	for _, b := range more {
		at += len(b)
	}
	m.postNotification(at-shm.WordSize, t.LastWord, t.LastWordGen)
	return nil
}

// errMustWait is the error of a message that has to wait for the exporter but must not.
var errMustWait = errors.New("the message goes by the stream")

// trySendRedirected is sendRedirected without waiting. It has done nothing when it fails with
// errMustWait.
func (m *Mapped) trySendRedirected(
	ctx context.Context, off int, src []byte,
) (t redirectedSend, err error) {
	if !m.Claims.TryAcquire() {
		return t, errMustWait
	}
	defer m.Claims.Release()
	if !m.canRunNow() { // another goroutine has begun to use the stream
		return t, errMustWait
	}
	err = m.sendWithClaims(ctx, &t, off, src, false, true)
	return t, err
}

// sendWithClaims sends a message. The caller holds the claims' semaphore.
func (m *Mapped) sendWithClaims(
	ctx context.Context, t *redirectedSend, off int, src []byte, notify, atOnce bool,
) (err error) {
	c := m.Claims
	if invariant.Enabled {
		m.traceSend(off, src, nil)
	}
	if err = m.beginAccess(ctx); err != nil {
		return err
	}
	rest, err := m.copyPieces(ctx, t, off, src, atOnce)
	if err == nil && rest < len(src) {
		// the stream counts the message and its own bytes
		m.counters.Add(shmlayout.Bytes, uint64(rest))
		t.byStream = true
		err = m.sendByStream(ctx, off+rest, src[rest:], notify)
		if err != nil && rest > 0 && !errors.Is(err, ErrUnknown) {
			err = unknown(err)
		}
		return err
	}
	last := off + len(src) - shm.WordSize
	if err == nil {
		c.Stored(&t.Claim, last)
	}
	if c.Finish(&t.Claim) { // on every path
		m.ringIfSleepers()
	}
	if err == nil {
		if err = m.check(); err != nil {
			err = unknown(err)
		} else {
			m.counters.Add2(shmlayout.Messages, 1, shmlayout.Bytes, uint64(len(src)))
			m.ringIfSleepers() // the importer does not know which waiters wait for redirected words
		}
		runtime.KeepAlive(m)
	}
	runtime.KeepAlive(c)
	return err
}

// copyPieces copies the message piece by piece, and returns how much it has copied: all, or what
// precedes the first piece that must be sent on the stream. With atOnce only the first piece may
// be.
func (m *Mapped) copyPieces(
	ctx context.Context, t *redirectedSend, off int, src []byte, atOnce bool,
) (done int, err error) {
	c, end := m.Claims, off+len(src)
	for at := off; at < end; {
		to := min(end, at+redirect.Piece)
		switch c.Try(&t.Claim, at, to) {
		case redirect.Late:
			m.ringIfSleepers()
		case redirect.ByStream:
			if !atOnce {
				return at - off, nil
			}
			if at == off {
				return 0, errMustWait
			}
		}
		if !t.borrowed {
			c.Copy(m.mem, &t.Claim, at, src[at-off:to-off], to == end)
		} else if err := shm.Guard(func() {
			c.Copy(m.mem, &t.Claim, at, src[at-off:to-off], to == end)
		}); err != nil {
			return at - off, err
		}
		at = to
		if at == end {
			return len(src), nil
		}
		if c.FinishEnded(&t.Claim) {
			m.ringIfSleepers()
		}
		err := m.check()
		if err == nil && ctx.Err() != nil {
			err = timeout.Ended(ctx)
		}
		if err != nil {
			return at - off, unknown(err)
		}
	}
	return len(src), nil
}

// sendByStream sends a message, or the rest of one, on the stream. It returns when the exporter has
// applied it, so the next message to the export may be copied. If the receiver ends the redirection
// before, the words go to the export.
func (m *Mapped) sendByStream(ctx context.Context, off int, src []byte, notify bool) error {
	err := m.req.sendInOrder(ctx, Message{
		Handle: m.handle, Off: uint64(off), Src: src, Notify: notify, Ended: m.Ended,
		Closed: m.LocallyClosed, Done: m.Done,
	})
	if errors.Is(err, ErrEnded) { // the shared pages give the reason
		why := m.check()
		if why == nil {
			why = ErrClosed
		}
		if errors.Is(err, ErrUnknown) {
			why = unknown(why)
		}
		return why
	}
	if err == nil {
		if err = m.check(); err != nil {
			err = unknown(err)
		}
	}
	runtime.KeepAlive(m)
	return err
}

// ringIfSleepers rings if a goroutine of the exporter sleeps: one may be ending a redirection and
// wait for this side's state.
func (m *Mapped) ringIfSleepers() {
	if m.board.Count.Load() != 0 {
		m.req.ringBell()
	}
}

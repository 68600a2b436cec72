package link

import (
	"context"
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// The loss of a connection, and a link that waits for another one.

// Redial makes the given attempt to resume a link, for an importer that has received the reply to
// message replied and the given number of notices of revoked imports. The cipher is set if the link
// is encrypted. An error that is [ErrGone] means that there is nothing to resume.
type Redial func(ctx context.Context, attempt, replied uint64, notices uint32) (fd int, c Cipher, a wire.Answer, err error)

// Pauses between attempts.
const (
	minRedialPause = 5 * time.Millisecond
	maxRedialPause = 250 * time.Millisecond
)

// connLost is called when the connection is unusable. It may be called under any lock. Nothing is
// received or sent after it. A link that does not survive its connection fails.
func (s *stream) connLost(err error) {
	s.stateMu.Lock()
	survives := s.reconnectLimit > 0 && s.expectedCause == nil
	lost := survives && s.State().Connected()
	if lost {
		s.transition(shmlayout.ConnLost)
	}
	s.stateMu.Unlock()
	switch {
	case !survives:
		s.fail(err)
	case lost:
		s.e.wg.Go(func() { s.handleConnLoss(err) })
	}
}

// handleConnLoss closes the connection and waits for another one.
func (s *stream) handleConnLoss(why error) {
	s.rmu.Lock()
	s.tmu.Lock()
	lost := s.State() == shmlayout.ConnLost // else the link has ended, or was resumed meanwhile
	if lost {
		s.disconnect(why)
	}
	s.tmu.Unlock()
	s.rmu.Unlock()
	if lost {
		s.tx.writeEvent.Advance()
		s.e.sleepers.Wake()
		s.h.reconnect(why)
	}
}

// disconnect closes the connection, if there is one, and discards what was queued on it. The caller
// holds rmu and tmu.
func (s *stream) disconnect(why error) {
	s.closeConn()
	s.rx.reset()
	s.tx.reset()
	s.connGen++
	s.h.resetConnState()
	if s.moveFrom(shmlayout.ConnReconnecting, shmlayout.ConnLost) {
		s.disconnects.Add(1)
		s.onConnChange(shmlayout.ConnReconnecting, why)
	}
}

// attach continues with another connection, in state to unless the peer's end is announced. The
// stream owns it unless attach fails. The caller holds rmu and tmu but not the token. The token's
// holder finds the descriptor armed once more, which costs it one receive.
func (s *stream) attach(fd int, c Cipher, to connState) error {
	err := unix.IsStream(fd)
	if err == nil && s.encrypted != (c != nil) {
		err = protocol("a connection that is encrypted: %v, of a link that is: %v", c != nil, s.encrypted)
	}
	if err != nil {
		return err
	}
	// Before the descriptor is armed: its event may come at once, and says then that it is not armed.
	armed := s.readArmed.Swap(true)
	if err := s.e.ep.Add(fd, s.id<<1, false); err != nil {
		s.readArmed.Store(armed)
		return err
	}
	s.fd = fd
	s.setCipher(c)
	s.setUpConn()
	s.resumes.Add(1)
	s.counters.AddLocked(shmlayout.Resumes, 1)
	s.stateMu.Lock()
	if s.expectedCause != nil {
		to = shmlayout.ConnDraining
	}
	live := s.State() == shmlayout.ConnReconnecting // else the link has ended: teardown closes fd
	if live {
		s.transition(to)
	}
	s.stateMu.Unlock()
	if live {
		s.onConnChange(to, nil) // before the new connection can be lost
	}
	return nil
}

// redialer makes another connection for a link that has lost its own.
type redialer struct {
	rq       *Requester
	redial   Redial
	attempts uint64        // Guarded by rmu, as all fields that follow.
	pause    time.Duration // Before the next attempt.

	progress  progress  // At the last loss of the connection.
	lateSince time.Time // When progress stopped.
	// An acknowledgement or answer was outstanding then.
	wasWaiting   bool
	partialBytes uint64 // See progress.
	replyBytes   uint64
}

// progress measures how much of what is outstanding has arrived.
type progress struct {
	// Messages acknowledged, and gets and atomics answered.
	messages uint64
	// Bytes of the next message that the exporter last said it has.
	partialBytes uint64
	// Bytes of the oldest answer when its connection was lost.
	replyBytes uint64
}

// madeProgress reports whether more has arrived than ever before since lateSince, or nothing is
// outstanding. It then restarts lateSince. The caller holds rmu.
func (d *redialer) madeProgress() bool {
	rq := d.rq
	acked := rq.ackedSeq.Load()
	waits := rq.fetches.count.Load() > 0 || acked != rq.lastSeq.Load()
	was, now := d.progress, progress{acked + rq.repliedSeq, d.partialBytes, d.replyBytes}
	if now.messages == was.messages {
		now.partialBytes, now.replyBytes = max(now.partialBytes, was.partialBytes), max(now.replyBytes, was.replyBytes)
	}
	if now == was && waits && d.wasWaiting {
		return false
	}
	d.progress, d.wasWaiting, d.lateSince, d.pause = now, waits, time.Now(), 0
	return true
}

// run dials until the link is resumed or the limit is reached. A connection that ends before it has
// brought anything that was outstanding is no success. The exporter says how much of a long message
// has arrived when it is dialled, so it is dialled once even after the limit.
func (d *redialer) run(why error) {
	rq := d.rq
	rq.rmu.Lock()
	d.madeProgress()
	until, pause := d.lateSince.Add(rq.reconnectLimit), d.pause
	rq.rmu.Unlock()
	late := !time.Now().Before(until)
	if late {
		until = time.Now().Add(pause + timeout.Hello)
	}
	ctx, stop := context.WithDeadlineCause(rq.lifeCtx, until, errNoAnswer)
	defer stop()
	last := errNoAttempt
	for timeout.Sleep(ctx, pause) {
		pause = min(max(2*pause, minRedialPause), maxRedialPause)
		err := d.dial(ctx, pause)
		if late && err == nil && !d.checkProgress() {
			last = errNoProgress
			break
		}
		switch {
		case err == nil || rq.failed.Load():
			return
		case isProtocol(err):
			rq.fail(err)
			return
		case errors.Is(err, errDeparted):
			rq.fail(err)
			return
		case errors.Is(err, ErrGone):
			rq.fail(Gone("%w; the link cannot be resumed: %w", why, err))
			return
		}
		// a time-out says less than the error before it
		if ctx.Err() == nil || errors.Is(last, errNoAttempt) {
			last = err
		}
	}
	rq.fail(d.unresumed(why, last))
}

// Why a link was not resumed, where no attempt has failed.
var (
	errNoAnswer   = code.New(code.Unreachable, "no answer came in time")
	errNoAttempt  = errors.New("there was no time for an attempt")
	errNoProgress = errors.New("its connections broke before more had arrived")
)

// checkProgress is madeProgress without rmu held.
func (d *redialer) checkProgress() bool {
	d.rq.rmu.Lock()
	defer d.rq.rmu.Unlock()
	return d.madeProgress()
}

// dial makes one attempt. pause precedes the next one.
func (d *redialer) dial(ctx context.Context, pause time.Duration) error {
	rq := d.rq
	rq.rmu.Lock()
	d.attempts++
	d.pause = pause
	n, replied, notices := d.attempts, rq.repliedSeq, rq.revokesSeen
	rq.rmu.Unlock()
	fd, c, a, err := d.redial(ctx, n, replied, notices)
	if err != nil {
		return err
	}
	return rq.resume(fd, c, &a)
}

// reconnect ends the link if the importer does not resume it in time.
func (rs *Responder) reconnect(why error) {
	rs.tmu.Lock()
	defer rs.tmu.Unlock()
	if rs.State() == shmlayout.ConnReconnecting {
		rs.startExpiry(why)
	}
}

// startExpiry starts the time within which the importer may resume. The caller holds tmu.
func (rs *Responder) startExpiry(why error) {
	rs.stopExpiry()
	ctx, stop := context.WithTimeout(rs.lifeCtx, rs.reconnectLimit)
	rs.stopExpiry = stop
	conn := rs.connGen
	rs.e.wg.Go(func() {
		defer stop()
		err := rs.awaitImporter(ctx, why)
		rs.tmu.Lock()
		late := rs.connGen == conn && rs.State() == shmlayout.ConnReconnecting
		rs.tmu.Unlock()
		if late && err != nil {
			rs.fail(err)
		}
	})
}

// Intervals between checks whether the importing process has ended.
const (
	// The node may hear of the end later than this side.
	minExitCheck = 10 * time.Millisecond
	maxExitCheck = time.Second
)

// awaitImporter waits for an importer that has lost its connection. It returns an error when the
// time is over or the importer's node knows that it has ended, and nil when the importer has
// resumed.
func (rs *Responder) awaitImporter(ctx context.Context, why error) error {
	asked := errNotAsked
	for pause := minExitCheck; timeout.Sleep(ctx, pause); pause = min(2*pause, maxExitCheck) {
		if rs.peerExited == nil {
			continue
		}
		gone, err := rs.peerExited(ctx)
		if gone {
			return Gone("the importing process has ended: its node says so")
		}
		if err == nil || ctx.Err() == nil || errors.Is(asked, errNotAsked) { // that time was up says less
			asked = err
		}
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return rs.unresumed(why, asked)
}

// errNotAsked is of an importer whose node was not asked.
var errNotAsked = errors.New("its node was not asked")

// Resume continues with another connection, which the link owns from then on, for an importer that
// has received the reply to message replied and the given number of notices. answer tells the
// importer, before anything else is sent, what has arrived or that the link has ended.
func (rs *Responder) Resume(
	fd int, c Cipher, replied uint64, notices uint32,
	answer func(ended error, applied, partial uint64, credits uint32) error,
) error {
	rs.rmu.Lock()
	defer rs.rmu.Unlock()
	rs.tmu.Lock()
	defer rs.tmu.Unlock()
	err := rs.err()
	switch {
	case err != nil:
	case rs.reconnectLimit == 0:
		err = protocol("a link that is not resumed was dialled again")
	case replied > rs.appliedSeq.Load() || notices > rs.revokeCount:
		err = protocol("the importer has had a reply to %d and %d notices, %d messages were applied and %d notices sent", replied, notices, rs.appliedSeq.Load(), rs.revokeCount)
		rs.fail(err)
	default:
		if err = rs.supersede(); err != nil {
			rs.fail(err)
		}
	}
	if err != nil {
		_ = answer(err, 0, 0, 0) // otherwise the importer would dial again
		_ = unix.Close(fd)
		return err
	}
	rs.stopExpiry()
	rs.disconnect(errConnReplaced) // no data of the old connection arrives after the answer
	partial := uint64(0)
	if rs.cur.active {
		partial = rs.cur.arrived
	}
	err = answer(nil, rs.appliedSeq.Load(), partial, rs.credits())
	if err == nil {
		rs.requeueReplies(replied, notices)
		err = rs.attach(fd, c, shmlayout.ConnEstablished)
	}
	if err != nil {
		_ = unix.Close(fd)
		rs.startExpiry(err)
		return err
	}
	rs.pump()
	return nil
}

// supersede gives up a connection whose loss the importer noticed first. It returns the link's
// cause if its end is announced.
func (rs *Responder) supersede() error {
	rs.stateMu.Lock()
	defer rs.stateMu.Unlock()
	if rs.expectedCause == nil && rs.State() == shmlayout.ConnEstablished {
		rs.transition(shmlayout.ConnLost)
	}
	return rs.expectedCause
}

// unresumed returns the error of a link that was not resumed within its limit. why is how its
// connection was lost, last why the last attempt failed.
func (d *redialer) unresumed(why, last error) error {
	text := "%w; the link was not resumed within %v: %w; import again when the exporter's node answers"
	// the limit's, not a call's
	if errors.Is(last, context.DeadlineExceeded) || errors.Is(last, context.Canceled) {
		text = "%w; the link was not resumed within %v: %v; import again when the exporter's node answers"
	}
	return Gone(text, why, d.rq.reconnectLimit, last)
}

// unresumed does the same for the exporting side. asked is why the importer's node could not say
// whether the process has ended, or nil.
func (rs *Responder) unresumed(why, asked error) error {
	if asked != nil {
		return Gone("%w; the importer has not resumed the link within %v, and whether its process has ended is not known: %v", why, rs.reconnectLimit, asked)
	}
	return Gone("%w; the importer has not resumed the link within %v, and its node does not know that the process has ended", why, rs.reconnectLimit)
}

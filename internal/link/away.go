package link

import (
	"context"
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// The end of a connection, and a link that waits for another one.

// Redial makes the attempt of this number to resume a link, for an importer that has had
// the reply to message replied and so many notices of revoked imports. The cipher is of a
// link that has one, and only of such. An error that is [ErrGone] means that there is nothing to resume.
type Redial func(ctx context.Context, attempt, replied uint64, notices uint32) (fd int, c Cipher, a wire.Answer, err error)

// Between attempts.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 250 * time.Millisecond
)

// lose is called when the connection is no good any more. It may be called under any
// lock; nothing is received or sent after it. A link that does not survive fails.
func (s *stream) lose(err error) {
	if s.limit == 0 || s.notice.Load() != nil {
		s.fail(err)
		return
	}
	if s.torn.CompareAndSwap(false, true) {
		s.e.wg.Go(func() { s.interrupt(err) })
	}
}

// interrupt closes the connection and waits for another one.
func (s *stream) interrupt(why error) {
	s.rmu.Lock()
	s.tmu.Lock()
	live := !s.broken.Load() && s.torn.Load() && s.fd >= 0 // else it has ended, or was resumed meanwhile
	if live {
		s.disconnect()
		s.news(false, why) // before anybody can say that it was resumed
	}
	s.tmu.Unlock()
	s.rmu.Unlock()
	if live {
		s.tx.room.Move()
		s.e.sleepers.Wake()
		s.h.away(why)
	}
}

// bye tells the other side, where it can be told, what it owes it still, and that there is nothing to resume; rmu and
// tmu are held.
func (s *stream) bye(why error) {
	if s.fd < 0 || s.tx.gone < s.tx.begun {
		return
	}
	var h wire.Header
	if s.h.farewell(&h) && !s.last(&h) {
		return // behind a part of a frame nothing can be said
	}
	if s.limit > 0 && !errors.Is(why, errBye) {
		s.last(&wire.Header{Type: wire.Bye, Word: reason(why)})
	}
}

// last writes a frame of a link that ends, and says whether the socket took all of it.
func (s *stream) last(h *wire.Header) bool {
	var b [wire.HeaderSize]byte
	h.Put(b[:], s.tx.number)
	s.tx.number++
	send := func() (int, error) { return s.tx.io.Send(s.fd, b[:], nil) }
	if s.tx.cipher != nil {
		send = func() (int, error) { return s.tx.cipher.Send(s.fd, b[:]) }
	}
	n, err := send()
	return err == nil && n == len(b)
}

// disconnect closes what there is of a connection; rmu and tmu are held.
func (s *stream) disconnect() {
	if s.fd >= 0 {
		s.losses.Add(1)
	}
	for _, fd := range []int{s.fd, s.wfd} {
		if fd >= 0 {
			s.e.ep.Remove(fd)
			s.close(fd)
		}
	}
	s.fd, s.wfd = -1, -1
	s.rx.restart()
	s.tx.restart()
	s.conn++
	s.h.interrupted()
}

// connect goes on with another connection, which the stream owns from now on; rmu and tmu
// are held. The token is not: who has it finds the descriptor armed once more, which
// costs it a look.
func (s *stream) connect(fd int, c Cipher) error {
	err := unix.IsStream(fd)
	if err == nil && s.encrypted != (c != nil) {
		err = protocol("a connection that is encrypted: %v, of a link that is: %v", c != nil, s.encrypted)
	}
	if err == nil {
		err = s.e.ep.Add(fd, s.id<<1, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	s.fd = fd
	s.secure(c)
	s.rx.quiet = c == nil && unix.Piecewise(fd)
	s.tx.pads(s.rx.quiet)
	s.keepShort()
	s.patience()
	s.listening.Store(true)
	s.torn.Store(false)
	if s.cause.Load() != nil { // it has failed meanwhile
		s.torn.Store(true)
	}
	s.resumptions.Add(1)
	s.count.Locked(page.Resumes, 1)
	return nil
}

// progress is how much has come of what is waited for.
type progress struct {
	whole   uint64 // messages that were acknowledged, and gets and atomics that were answered
	partial uint64 // bytes of the next message that the exporter has, as it said last
	got     uint64 // bytes of the oldest answer that had come when its connection broke
}

// advanced says whether more has come than ever before since the link was late first, or
// nothing is waited for; the link is late from now on then. rmu is held.
func (o *Out) advanced() bool {
	acked := o.acked.Load()
	o.gmu.Lock()
	owed := len(o.gets) > 0
	o.gmu.Unlock()
	waits := owed || acked != o.seq.Load()
	was, now := o.progress, progress{acked + o.replied, o.partial, o.got}
	if now.whole == was.whole {
		now.partial, now.got = max(now.partial, was.partial), max(now.got, was.got)
	}
	if now == was && waits && o.waits {
		return false
	}
	o.progress, o.waits, o.since, o.pause = now, waits, time.Now(), 0
	return true
}

// away dials until the link is resumed, or the limit is reached. A connection that ends
// before it has brought anything that was waited for is no success. How much of a long message has
// come the exporter says when it is dialled, so it is dialled once also when it is late.
func (o *Out) away(why error) {
	o.rmu.Lock()
	o.advanced()
	until, pause := o.since.Add(o.limit), o.pause
	o.rmu.Unlock()
	late := !time.Now().Before(until)
	if late {
		until = time.Now().Add(pause + timeout.Hello)
	}
	ctx, stop := context.WithDeadlineCause(o.life, until, errNoAnswer)
	defer stop()
	last := errNoAttempt
	for within(ctx, pause) {
		pause = min(max(2*pause, firstPause), longestPause)
		err := o.attempt(ctx, pause)
		if late && err == nil && !o.moves() {
			last = errNoProgress
			break
		}
		switch {
		case err == nil || o.broken.Load():
			return
		case isProtocol(err):
			o.fail(err)
			return
		case errors.Is(err, errDeparted):
			o.fail(err)
			return
		case errors.Is(err, ErrGone):
			o.fail(Gone("%w; the link cannot be resumed: %w", why, err))
			return
		}
		if ctx.Err() == nil || errors.Is(last, errNoAttempt) { // that time was up says less than why it did not work before
			last = err
		}
	}
	o.fail(o.unresumed(why, last))
}

// Why a link was not resumed, where no attempt has failed.
var (
	errNoAnswer   = code.New(code.Unreachable, "no answer came in time")
	errNoAttempt  = errors.New("there was no time for an attempt")
	errNoProgress = errors.New("its connections broke before more had arrived")
)

// moves is advanced for who has no lock.
func (o *Out) moves() bool {
	o.rmu.Lock()
	defer o.rmu.Unlock()
	return o.advanced()
}

// within waits, and says whether the context still lives.
func within(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o *Out) attempt(ctx context.Context, pause time.Duration) error {
	o.rmu.Lock()
	o.attempts++
	o.pause = pause
	n, replied, notices := o.attempts, o.replied, o.notices
	o.rmu.Unlock()
	fd, c, a, err := o.redial(ctx, n, replied, notices)
	if err != nil {
		return err
	}
	return o.resume(fd, c, &a)
}

// resume goes on where the exporter's answer says.
func (o *Out) resume(fd int, c Cipher, a *wire.Answer) error {
	o.rmu.Lock()
	o.tmu.Lock()
	if err := o.err(); err != nil {
		o.tmu.Unlock()
		o.rmu.Unlock()
		_ = unix.Close(fd)
		return err
	}
	lapsed, err := o.resumed(a)
	if err == nil {
		err = o.connect(fd, c)
	} else {
		_ = unix.Close(fd)
	}
	if err == nil {
		o.news(true, nil) // before the new connection can be lost
		o.pump()
	}
	o.tmu.Unlock()
	for _, l := range lapsed {
		o.onRevoke(l.handle, l.after, ErrClosed)
	}
	o.tick.Move()
	o.rmu.Unlock()
	o.tx.room.Move()
	o.e.sleepers.Wake()
	return err
}

// away ends the link if nobody has resumed it in time.
func (in *In) away(why error) {
	in.tmu.Lock()
	defer in.tmu.Unlock()
	if in.fd < 0 {
		in.expire(why)
	}
}

// expire begins the time within which the importer may resume; tmu is held.
func (in *In) expire(why error) {
	in.resumed()
	ctx, stop := context.WithTimeout(in.life, in.limit)
	in.resumed = stop
	conn := in.conn
	in.e.wg.Go(func() {
		defer stop()
		err := in.outlive(ctx, why)
		in.tmu.Lock()
		late := in.conn == conn && in.fd < 0
		in.tmu.Unlock()
		if late && err != nil {
			in.fail(err)
		}
	})
}

// Between questions whether the importing process has ended.
const (
	firstQuestion   = 10 * time.Millisecond // its node may hear of it later than this side
	longestQuestion = time.Second
)

// outlive waits for an importer that has lost its connection, and says why not any longer:
// its time is over, or its node knows that it has ended. Nil is of one that has come.
func (in *In) outlive(ctx context.Context, why error) error {
	asked := errNotAsked
	for pause := firstQuestion; within(ctx, pause); pause = min(2*pause, longestQuestion) {
		if in.departed == nil {
			continue
		}
		gone, err := in.departed(ctx)
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
	return in.unresumed(why, asked)
}

// errNotAsked is of an importer whose node was not asked.
var errNotAsked = errors.New("its node was not asked")

// Resume goes on with another connection, which the link owns from now on, for an
// importer that has had the reply to message replied and so many notices. answer tells it
// what has arrived, before anything else is sent, or that the link has ended.
func (in *In) Resume(fd int, c Cipher, replied uint64, notices uint32, answer func(ended error, applied, partial uint64, credits uint32) error) error {
	in.rmu.Lock()
	defer in.rmu.Unlock()
	in.tmu.Lock()
	defer in.tmu.Unlock()
	err := in.err()
	switch {
	case err != nil:
	case in.stream.notice.Load() != nil: // the link is about to end
		err = *in.stream.notice.Load()
		in.fail(err)
	case in.limit == 0:
		err = protocol("a link that is not resumed was dialled again")
	case replied > in.applied.Load() || notices > in.noticed:
		err = protocol("the importer has had a reply to %d and %d notices, %d messages were applied and %d notices sent", replied, notices, in.applied.Load(), in.noticed)
		in.fail(err)
	}
	if err != nil {
		_ = answer(err, 0, 0, 0) // else the importer would dial again
		_ = unix.Close(fd)
		return err
	}
	in.torn.Store(true)
	in.resumed()
	if in.fd >= 0 { // the importer has seen it first
		in.news(false, errReplaced)
	}
	in.disconnect() // nothing that the old connection still has arrives after the answer
	partial := uint64(0)
	if in.cur.active {
		partial = in.cur.done
	}
	err = answer(nil, in.applied.Load(), partial, in.credits())
	if err == nil {
		in.again(replied, notices)
		err = in.connect(fd, c)
	} else {
		_ = unix.Close(fd)
	}
	if err != nil {
		in.expire(err)
		return err
	}
	in.pump()
	in.news(true, nil)
	return nil
}

package link

import (
	"bytes"
	"context"
	"errors"
	"runtime"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// Claims is the importer's part in the redirection of an export that it has
// mapped (docs/models: redir). All imports that a process has of one export
// share one, because their messages go one after another.
type Claims struct {
	sem       *semaphore.Semaphore // one: a message
	post      shmlayout.Post
	claim     shmlayout.Claim
	targets   []*shm.Region
	sizes     []int
	lastGen   uint32 // the last generation that was claimed
	sentCount uint64 // messages
}

// NewClaims takes over the pages.
func NewClaims(post shmlayout.Post, claim shmlayout.Claim) *Claims {
	return &Claims{
		sem: semaphore.New(1), post: post, claim: claim,
		lastGen: claim.Claimed().Load(), sentCount: claim.Messages().Load(),
	}
}

// AddTarget takes over the next memory that may be redirected to, the first size
// bytes of it.
func (c *Claims) AddTarget(r *shm.Region, size int) {
	c.targets = append(c.targets, r)
	c.sizes = append(c.sizes, size)
}

// Retire gives all of it back.
func (c *Claims) Retire() {
	c.post.Retire()
	c.claim.Retire()
	for _, t := range c.targets {
		t.Retire()
	}
}

// WhenIdle calls f when no message is on its way.
func (c *Claims) WhenIdle(f func()) {
	_ = c.sem.Acquire(context.Background()) // which does not end
	f()
	c.sem.Release()
}

// claim is the redirection of one message, as the importer has read it.
type claim struct {
	gen    uint32
	lo, hi int // in the export
	to     []byte
	n      int
	ending bool // the receiver wants no more

	borrowed    bool   // the memory is another goroutine's, and may not be there any more
	lastWord    uint32 // the last word, once it is stored
	lastWordGen uint32 // the redirection that took it, 0 for none

	byStream bool // the message, or the rest of it, went by the stream
}

func (t *claim) has(off int) bool { return t.gen != 0 && !t.ending && off >= t.lo && off < t.hi }

// redirPiece is how much is copied before the receiver's word is looked at again.
const redirPiece = 16 << 10

// sendRedirected is Send to a redirectable export: what the receiver has posted a
// place for goes there, in ascending order, all else to the export. The caller
// has a credit for notify. It is used up or given back if the message went by the
// stream; else the notification is left to the caller. lent is of memory that
// another goroutine has lent.
func (m *Mapped) sendRedirected(
	ctx context.Context, off int, src []byte, more [][]byte, notify, borrowed bool,
) (t claim, err error) {
	t.borrowed = borrowed
	if len(more) > 0 {
		src = append(bytes.Clone(src), bytes.Join(more, nil)...)
	}
	if err := m.Claims.sem.Acquire(ctx); err != nil {
		return t, err
	}
	defer m.Claims.sem.Release()
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
		m.req.untakeCredit(true) // no note without its data
		return err
	}
	at := off + len(src)
	for _, b := range more {
		at += len(b)
	}
	m.postNotification(at-shm.WordSize, t.lastWord, t.lastWordGen)
	return nil
}

// errMustWait is of a message that has to wait for the exporter, and is not to.
var errMustWait = errors.New("the message goes by the stream")

// trySendRedirected is redirected without waiting for anything. It has done nothing
// when it fails with errMustWait.
func (m *Mapped) trySendRedirected(ctx context.Context, off int, src []byte) (t claim, err error) {
	if !m.Claims.sem.TryAcquire() {
		return t, errMustWait
	}
	defer m.Claims.sem.Release()
	if !m.canRunNow() { // another goroutine has begun to use the stream
		return t, errMustWait
	}
	err = m.sendWithClaims(ctx, &t, off, src, false, true)
	return t, err
}

// sendWithClaims is a message with the turn.
func (m *Mapped) sendWithClaims(
	ctx context.Context, t *claim, off int, src []byte, notify, atOnce bool,
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
		m.counters.Add(shmlayout.Bytes, uint64(rest)) // the stream counts the message, and its own bytes
		t.byStream = true
		err = m.sendByStream(ctx, off+rest, src[rest:], notify)
		if err != nil && rest > 0 && !errors.Is(err, ErrUnknown) {
			err = unknown(err)
		}
		return err
	}
	last := off + len(src) - shm.WordSize
	if err == nil {
		if t.has(last) {
			t.lastWordGen = t.gen
		}
		c.sentCount++
		c.claim.End(c.sentCount).Store(uint64(last))
		c.claim.Messages().Store(c.sentCount) // after the last word: a receiver finds it there
	}
	if t.gen != 0 {
		c.claim.Finished().Store(t.gen) // on every way out, after the last store
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

// copyPieces copies the message piece by piece, and returns how much of it is copied:
// all, or what comes before the first piece that is to go by the stream. atOnce
// lets none go there after the first.
func (m *Mapped) copyPieces(
	ctx context.Context, t *claim, off int, src []byte, atOnce bool,
) (done int, err error) {
	c, end := m.Claims, off+len(src)
	for at := off; at < end; {
		to := min(end, at+redirPiece)
		if t.gen == 0 {
			switch c.tryClaim(t, at, to) {
			case claimLate:
				m.ringIfSleepers()
			case claimByStream:
				if !atOnce {
					return at - off, nil
				}
				if at == off {
					return 0, errMustWait
				}
			}
		}
		if !t.borrowed {
			m.copyPiece(c, t, at, src[at-off:to-off], to == end)
		} else if err := shm.Guard(func() {
			m.copyPiece(c, t, at, src[at-off:to-off], to == end)
		}); err != nil {
			return at - off, err
		}
		at = to
		if at == end {
			return len(src), nil
		}
		// The next one may be posted already to an importer that has lost its link and
		// does not know yet.
		if t.gen != 0 && !t.ending && c.post.State().Load() != shmlayout.Posted(t.gen) {
			t.ending = true
			c.claim.Finished().Store(t.gen) // after the last store there: who ends it need not wait for the rest
			m.ringIfSleepers()
		}
		err := m.check()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return at - off, unknown(err)
		}
	}
	return len(src), nil
}

// sendByStream sends a message, or what is left of one, by the stream, and returns when
// it has arrived, as a mapped send does: the next message to the export may be
// copied then. Where the receiver ends the redirection before, the words go to
// the export all the same.
func (m *Mapped) sendByStream(ctx context.Context, off int, src []byte, notify bool) error {
	err := m.req.sendInOrder(ctx, Message{
		Handle: m.handle, Off: uint64(off), Src: src, Notify: notify, Ended: m.Ended,
	})
	if errors.Is(err, ErrEnded) { // the pages say why
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

// ringIfSleepers wakes who ends a redirection and waits for this side's word.
func (m *Mapped) ringIfSleepers() {
	if m.board.Count.Load() != 0 {
		m.req.ringBell()
	}
}

// claimResult says what became of a look at what is posted.
type claimResult uint8

const (
	claimNone     claimResult = iota // nothing is posted for the piece
	claimOK                          // this message has claimed it
	claimLate                        // the receiver has ended it, and may have seen the claim
	claimByStream                    // the stream is to be used for it
)

// tryClaim claims what is posted for [at, to), if anything is.
func (c *Claims) tryClaim(t *claim, at, to int) claimResult {
	s := c.post.State().Load()
	gen := s / 2
	if s == 0 || s != shmlayout.Posted(gen) || gen == c.lastGen {
		return claimNone
	}
	lo, hi := c.post.Low().Load(), c.post.High().Load() // once: the receiver may lie, and change its mind
	i, from := c.post.Target().Load(), c.post.Offset().Load()
	if lo >= hi || hi > maxOffset || (lo|hi)%shm.WordSize != 0 || int(lo) >= to || int(hi) <= at {
		return claimNone
	}
	if i == shmlayout.ByStream { // which range it is the receiver finds out itself
		return claimByStream
	}
	if int(i) >= len(c.targets) || from%shm.WordSize != 0 ||
		from > uint64(c.sizes[i]) || hi-lo > uint64(c.sizes[i])-from {
		return claimNone
	}
	c.claim.First().Store(uint64(max(at, int(lo))) - lo)
	c.claim.Done().Store(0)
	c.claim.Claimed().Swap(gen)
	if c.post.State().Load() != s { // the receiver stores there before it looks at the claim
		c.claim.Claimed().Swap(0)
		return claimLate
	}
	c.lastGen = gen
	t.gen, t.lo, t.hi, t.to = gen, int(lo), int(hi), c.targets[i].Bytes()[from:from+hi-lo]
	return claimOK
}

// maxOffset bounds offsets that a peer gives, so that they stay numbers of this machine.
const maxOffset = 1 << 46

// copyPiece copies one piece, at most [redirPiece] long, in ascending order; the
// message's last word, when it is in it, by itself.
func (m *Mapped) copyPiece(c *Claims, t *claim, at int, src []byte, last bool) {
	end := at + len(src)
	if last {
		end -= shm.WordSize
	}
	for p := at; p < end; {
		dst, n := m.mem[p:end], end-p
		switch {
		case t.has(p):
			n = min(n, t.hi-p)
			dst = t.to[p-t.lo:]
			t.n += n
		case t.gen != 0 && !t.ending && p < t.lo:
			n = min(n, t.lo-p)
		}
		copy(dst[:n], src[p-at:])
		p += n
	}
	if !last {
		if t.gen != 0 && !t.ending {
			c.claim.Done().Store(uint64(t.n))
		}
		return
	}
	t.lastWord = shm.LastWord(src) // read before the word is counted
	dst := m.mem[end:]
	if t.has(end) {
		t.n += shm.WordSize
		dst = t.to[end-t.lo:]
	}
	if t.gen != 0 && !t.ending {
		c.claim.Done().Store(uint64(t.n)) // counts the last word before it can be seen
	}
	shm.Word(dst, 0).Swap(t.lastWord)
}

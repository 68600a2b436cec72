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
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Claims is the importer's side of the redirection of an export that it has mapped (docs/models:
// redir). All imports of one export in a process share it, because their messages are sent one
// after another.
type Claims struct {
	sem       *semaphore.Semaphore // Admits one message at a time.
	post      shmlayout.Post
	claim     shmlayout.Claim
	targets   []*shm.Region
	sizes     []int
	lastGen   uint32 // The last generation that was claimed.
	sentCount uint64 // Messages sent.
}

// NewClaims takes ownership of the pages.
func NewClaims(post shmlayout.Post, claim shmlayout.Claim) *Claims {
	return &Claims{
		sem: semaphore.New(1), post: post, claim: claim,
		lastGen: claim.Claimed().Load(), sentCount: claim.Messages().Load(),
	}
}

// AddTarget takes ownership of the next memory that may be redirected to, and allows its first size
// bytes.
func (c *Claims) AddTarget(r *shm.Region, size int) {
	c.targets = append(c.targets, r)
	c.sizes = append(c.sizes, size)
}

// Retire releases all of it.
func (c *Claims) Retire() {
	c.post.Retire()
	c.claim.Retire()
	for _, t := range c.targets {
		t.Retire()
	}
}

// WhenIdle calls f when no message is in progress.
func (c *Claims) WhenIdle(f func()) {
	_ = c.sem.Acquire(context.Background()) // this context does not end
	f()
	c.sem.Release()
}

// claim is the redirection of one message, as the importer has read it.
type claim struct {
	gen    uint32
	lo, hi int // In the export.
	to     []byte
	n      int
	ending bool // The receiver ends the redirection.

	// The source is another goroutine's memory, which may be unmapped.
	borrowed    bool
	lastWord    uint32 // Once it is stored.
	lastWordGen uint32 // The redirection that took it; 0: none.

	// The message, or its rest, was sent on the stream.
	byStream bool
}

func (t *claim) has(off int) bool { return t.gen != 0 && !t.ending && off >= t.lo && off < t.hi }

// redirPiece is how much is copied before the receiver's state is checked again.
const redirPiece = 16 << 10

// sendRedirected is Send to a redirectable export. What the receiver has posted a target for goes
// there, in ascending order; all else goes to the export. The caller has a credit for notify. If
// the message was sent on the stream, the credit is used or returned; otherwise the notification is
// left to the caller. borrowed says that another goroutine owns the source.
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
		m.req.untakeCredit(true) // no notification without its data
		return err
	}
	at := off + len(src)
	for _, b := range more {
		at += len(b)
	}
	m.postNotification(at-shm.WordSize, t.lastWord, t.lastWordGen)
	return nil
}

// errMustWait is the error of a message that has to wait for the exporter but must not.
var errMustWait = errors.New("the message goes by the stream")

// trySendRedirected is sendRedirected without waiting. It has done nothing when it fails with
// errMustWait.
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

// sendWithClaims sends a message. The caller holds the claims' semaphore.
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
		if t.has(last) {
			t.lastWordGen = t.gen
		}
		c.sentCount++
		c.claim.End(c.sentCount).Store(uint64(last))
		// after the last word, so that a receiver finds the word there
		c.claim.Messages().Store(c.sentCount)
	}
	if t.gen != 0 {
		c.claim.Finished().Store(t.gen) // on every path, after the last store
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
		// The next redirection may already be posted, to an importer that has lost its link and
		// does not know yet.
		if t.gen != 0 && !t.ending && c.post.State().Load() != shmlayout.Posted(t.gen) {
			t.ending = true
			// after the last store there: the exporter's End need not wait for the rest
			c.claim.Finished().Store(t.gen)
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

// claimResult is the result of tryClaim.
type claimResult uint8

const (
	claimNone claimResult = iota // Nothing is posted for the piece.
	claimOK                      // This message has claimed it.
	// The receiver has ended it, and may have seen the claim.
	claimLate
	claimByStream // The piece must be sent on the stream.
)

// tryClaim claims what is posted for [at, to), if anything is.
func (c *Claims) tryClaim(t *claim, at, to int) claimResult {
	s := c.post.State().Load()
	gen := s / 2
	if s == 0 || s != shmlayout.Posted(gen) || gen == c.lastGen {
		return claimNone
	}
	// load once: the receiver may lie and change the values
	lo, hi := c.post.Low().Load(), c.post.High().Load()
	i, from := c.post.Target().Load(), c.post.Offset().Load()
	if lo >= hi || hi > maxOffset || (lo|hi)%shm.WordSize != 0 || int(lo) >= to || int(hi) <= at {
		return claimNone
	}
	if i == shmlayout.ByStream { // the receiver determines the range itself
		return claimByStream
	}
	if int(i) >= len(c.targets) || from%shm.WordSize != 0 ||
		from > uint64(c.sizes[i]) || hi-lo > uint64(c.sizes[i])-from {
		return claimNone
	}
	c.claim.First().Store(uint64(max(at, int(lo))) - lo)
	c.claim.Done().Store(0)
	c.claim.Claimed().Swap(gen)
	if c.post.State().Load() != s { // the receiver stores State before it loads Claimed
		c.claim.Claimed().Swap(0)
		return claimLate
	}
	c.lastGen = gen
	t.gen, t.lo, t.hi, t.to = gen, int(lo), int(hi), c.targets[i].Bytes()[from:from+hi-lo]
	return claimOK
}

// maxOffset bounds offsets that a peer gives, so that they fit this machine's int.
const maxOffset = 1 << 46

// copyPiece copies one piece of at most [redirPiece] bytes in ascending order. The message's last
// word, if it is in the piece, is stored separately.
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

package redirect

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// Claims is the importer's side of the redirection of an export that it has mapped. All imports of
// one export in a process share it, because their messages are sent one after another.
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

// AcquireUntil waits until the caller may send a message, until done is closed at most: then the
// error is [semaphore.ErrStopped].
func (c *Claims) AcquireUntil(ctx context.Context, done <-chan struct{}) error {
	return c.sem.AcquireUntil(ctx, done)
}

// TryAcquire reports whether the caller may send a message.
func (c *Claims) TryAcquire() bool { return c.sem.TryAcquire() }

// Release lets the next message be sent.
func (c *Claims) Release() { c.sem.Release() }

// WhenIdle calls f when no message is in progress.
func (c *Claims) WhenIdle(f func()) {
	_ = c.sem.Acquire(context.Background()) // this context does not end
	f()
	c.sem.Release()
}

// Claim is the redirection of one message, as the importer has read it. The zero Claim is none.
type Claim struct {
	gen    uint32
	lo, hi int // In the export.
	to     []byte
	n      int
	ending bool // The receiver ends the redirection.

	LastWord    uint32 // Once it is stored.
	LastWordGen uint32 // The redirection that took it; 0: none.
}

func (t *Claim) has(off int) bool { return t.gen != 0 && !t.ending && off >= t.lo && off < t.hi }

// Piece is how much is copied before the receiver's state is checked again.
const Piece = 16 << 10

// Result is the result of [Claims.Try].
type Result uint8

// Results of Try.
const (
	noClaim  Result = iota // Nothing is posted for the piece.
	newClaim               // This message has claimed it.
	Late                   // The receiver has ended it, and may have seen the claim.
	ByStream               // The piece must be sent on the stream.
)

// Try claims for a message what is posted for [at, to), if anything is and it has claimed nothing.
func (c *Claims) Try(t *Claim, at, to int) Result {
	if t.gen != 0 {
		return noClaim
	}
	s := c.post.State().Load()
	gen := s / 2
	if s == 0 || s != shmlayout.Posted(gen) || gen == c.lastGen {
		return noClaim
	}
	// load once: the receiver may lie and change the values
	lo, hi := c.post.Low().Load(), c.post.High().Load()
	i, from := c.post.Target().Load(), c.post.Offset().Load()
	if lo >= hi || hi > maxOffset || (lo|hi)%shm.WordSize != 0 || int(lo) >= to || int(hi) <= at {
		return noClaim
	}
	if i == shmlayout.ByStream { // the receiver determines the range itself
		return ByStream
	}
	if int(i) >= len(c.targets) || from%shm.WordSize != 0 ||
		from > uint64(c.sizes[i]) || hi-lo > uint64(c.sizes[i])-from {
		return noClaim
	}
	c.claim.First().Store(uint64(max(at, int(lo))) - lo)
	c.claim.Done().Store(0)
	c.claim.Claimed().Swap(gen)
	if c.post.State().Load() != s { // the receiver stores State before it loads Claimed
		c.claim.Claimed().Swap(0)
		return Late
	}
	c.lastGen = gen
	t.gen, t.lo, t.hi, t.to = gen, int(lo), int(hi), c.targets[i].Bytes()[from:from+hi-lo]
	return newClaim
}

// maxOffset bounds offsets that a peer gives, so that they fit this machine's int.
const maxOffset = 1 << 46

// Copy copies one piece, of at most [Piece] bytes, to offset at of mem, the export, in ascending
// order. The message's last word, if it is in the piece, is stored separately.
func (c *Claims) Copy(mem []byte, t *Claim, at int, src []byte, last bool) {
	end := at + len(src)
	if last {
		end -= shm.WordSize
	}
	for p := at; p < end; {
		dst, n := mem[p:end], end-p
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
	t.LastWord = shm.LastWord(src) // read before the word is counted
	dst := mem[end:]
	if t.has(end) {
		t.n += shm.WordSize
		dst = t.to[end-t.lo:]
	}
	if t.gen != 0 && !t.ending {
		c.claim.Done().Store(uint64(t.n)) // counts the last word before it can be seen
	}
	shm.Word(dst, 0).Swap(t.LastWord)
}

// FinishEnded finishes the claim if the receiver has ended the redirection between two pieces, and
// reports whether it has. The rest goes to the export then. The next redirection may already be
// posted, to an importer that has lost its link and does not know yet.
func (c *Claims) FinishEnded(t *Claim) bool {
	if t.gen == 0 || t.ending || c.post.State().Load() == shmlayout.Posted(t.gen) {
		return false
	}
	t.ending = true
	// after the last store there: the exporter's End need not wait for the rest
	c.claim.Finished().Store(t.gen)
	return true
}

// Stored records that a message is stored whose last word is at last.
func (c *Claims) Stored(t *Claim, last int) {
	if t.has(last) {
		t.LastWordGen = t.gen
	}
	c.sentCount++
	c.claim.End(c.sentCount).Store(uint64(last))
	// after the last word, so that a receiver finds the word there
	c.claim.Messages().Store(c.sentCount)
}

// Finish ends a message's redirection, after the message's last store, and reports whether there
// was one.
func (c *Claims) Finish(t *Claim) bool {
	if t.gen == 0 {
		return false
	}
	c.claim.Finished().Store(t.gen)
	return true
}

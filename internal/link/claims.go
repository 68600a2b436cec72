package link

import (
	"bytes"
	"context"
	"runtime"

	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/turn"
)

// Claims is the importer's part in the redirection of an export that it has
// mapped (docs/models: redir). All imports that a process has of one export
// share one, because their messages go one after another.
type Claims struct {
	turn    *turn.Turns // one: a message
	post    page.Post
	claim   page.Claim
	targets []*shm.Region
	sizes   []int
	used    uint32 // the last generation that was claimed
	sent    uint64 // messages
}

// NewClaims takes over the pages.
func NewClaims(post page.Post, claim page.Claim) *Claims {
	return &Claims{
		turn: turn.New(1), post: post, claim: claim,
		used: claim.Claimed().Load(), sent: claim.Messages().Load(),
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

// Quiet calls f when no message is on its way.
func (c *Claims) Quiet(f func()) {
	_ = c.turn.Take(context.Background()) // which does not end
	f()
	c.turn.Give()
}

// taken is the redirection of one message, as the importer has read it.
type taken struct {
	gen    uint32
	lo, hi int // in the export
	to     []byte
	n      int
	ending bool // the receiver wants no more
}

func (t *taken) has(off int) bool { return t.gen != 0 && !t.ending && off >= t.lo && off < t.hi }

// redirPiece is how much is copied before the receiver's word is looked at again.
const redirPiece = 16 << 10

// redirected is Send to a redirectable export: what the receiver has posted a
// place for goes there, in ascending order, all else to the export.
func (m *Mapped) redirected(ctx context.Context, off int, src []byte, more [][]byte) (redir uint32, err error) {
	if len(more) > 0 {
		src = append(bytes.Clone(src), bytes.Join(more, nil)...)
	}
	c := m.Claims
	if err := c.turn.Take(ctx); err != nil {
		return 0, err
	}
	defer c.turn.Give()
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	var t taken
	last := off + len(src) - shm.WordSize
	err = m.deliver(ctx, c, &t, off, src)
	if err == nil {
		if t.has(last) {
			redir = t.gen
		}
		c.sent++
		c.claim.End(c.sent).Store(uint64(last))
		c.claim.Messages().Store(c.sent) // after the last word: who looks for data here finds it there
	}
	if t.gen != 0 {
		c.claim.Finished().Store(t.gen) // on every way out, after the last store
		m.wake()
	}
	if err == nil {
		if err = m.check(); err != nil {
			err = unknown(err)
		} else { // of redirected words nobody knows from here who waits for them
			m.wake()
		}
		runtime.KeepAlive(m)
	}
	runtime.KeepAlive(c)
	return redir, err
}

// deliver copies the message piece by piece.
func (m *Mapped) deliver(ctx context.Context, c *Claims, t *taken, off int, src []byte) error {
	end := off + len(src)
	for at := off; at < end; {
		to := min(end, at+redirPiece)
		if t.gen == 0 && c.take(t, at, to) {
			m.wake()
		}
		m.piece(c, t, at, src[at-off:to-off], to == end)
		at = to
		if at == end {
			return nil
		}
		// The next one may be posted already to an importer that has lost its link and
		// does not know yet.
		if t.gen != 0 && !t.ending && c.post.State().Load() != page.Posted(t.gen) {
			t.ending = true
			c.claim.Finished().Store(t.gen) // after the last store there: who ends it need not wait for the rest
			m.wake()
		}
		err := m.check()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return unknown(err)
		}
	}
	return nil
}

// wake wakes who ends a redirection and waits for this side's word.
func (m *Mapped) wake() {
	if m.board.Count.Load() != 0 {
		m.out.ring()
	}
}

// take claims what is posted for [at, to), if anything is. gaveUp says that the
// receiver was quicker, and may have seen the claim.
func (c *Claims) take(t *taken, at, to int) (gaveUp bool) {
	s := c.post.State().Load()
	gen := s / 2
	if s == 0 || s != page.Posted(gen) || gen == c.used {
		return false
	}
	lo, hi := c.post.Low().Load(), c.post.High().Load() // once: the receiver may lie, and change its mind
	i, from := c.post.Target().Load(), c.post.Offset().Load()
	if int(i) >= len(c.targets) || lo >= hi || hi > maxOffset || from > uint64(c.sizes[i]) ||
		hi-lo > uint64(c.sizes[i])-from || (lo|hi|from)%shm.WordSize != 0 {
		return false
	}
	if int(lo) >= to || int(hi) <= at {
		return false
	}
	c.claim.First().Store(uint64(max(at, int(lo))) - lo)
	c.claim.Done().Store(0)
	c.claim.Claimed().Swap(gen)
	if c.post.State().Load() != s { // the receiver stores there before it looks at the claim
		c.claim.Claimed().Swap(0)
		return true
	}
	c.used = gen
	*t = taken{gen: gen, lo: int(lo), hi: int(hi), to: c.targets[i].Bytes()[from : from+hi-lo]}
	return false
}

// maxOffset bounds offsets that a peer gives, so that they stay numbers of this machine.
const maxOffset = 1 << 46

// piece copies one piece, at most [redirPiece] long, in ascending order; the
// message's last word, when it is in it, by itself.
func (m *Mapped) piece(c *Claims, t *taken, at int, src []byte, last bool) {
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
	dst := m.mem[end:]
	if t.has(end) {
		t.n += shm.WordSize
		dst = t.to[end-t.lo:]
	}
	if t.gen != 0 && !t.ending {
		c.claim.Done().Store(uint64(t.n)) // counts the last word before it can be seen
	}
	shm.Word(dst, 0).Swap(shm.LastWord(src))
}

package link

import (
	"context"
	"runtime"
	"sync"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Redirect is the transfer redirection of one export, and its end of data (docs/models: redir). On
// the stream path this process places the data itself: the link that receives a message claims the
// redirection. An importer that has mapped both the export and the redirection's target claims it
// in the shared pages and places the data. For a target that it has not mapped, the exporter tells
// it to use the stream until a message has claimed the redirection.
//
// At most one process has the export mapped. Its messages on the two paths are never in progress
// together: it begins a message when all its messages on the stream are acknowledged. Offsets and
// sizes are in bytes.
type Redirect struct {
	e    *Engine
	size uint64 // Of the export.

	mu    sync.Mutex // Taken after rmu.
	gen   uint32     // Of the last post.
	state redirState
	post  post
	claim *Responder // The link whose message is being redirected.
	// First redirected byte, from the range's beginning.
	first      uint64
	redirected uint64 // Bytes redirected from there on.
	// Posts that an importer was told of, by generation, for notifications in flight.
	past [shmlayout.Credits]post

	// Offset behind the last message's last word; 0: none.
	end uint64
	// Messages of the claim page that ClearEnd has seen.
	cleared uint64

	// With the importer that has the export mapped; nil: none.
	shared *Shared
	// With the previous importer, which has begun to redirect what is still posted.
	orphan *Shared
	// End waits for the importer, or gave up waiting: the post can no longer be claimed.
	ending bool
}

// post is one call of Post.
type post struct {
	gen    uint32
	lo, hi uint64
	to     []byte
	// The importer has mapped the target, claims the post and copies.
	shared bool
}

// at returns where the buffer's bytes at off lie.
func (p *post) at(off uint64) []byte { return p.to[off-p.lo:] }

func (p *post) has(off uint64) bool { return off >= p.lo && off < p.hi }

type redirState uint8

const (
	unposted redirState = iota
	posted
	claimed  // A message is being redirected.
	finished // The message is complete; End reads how much.
	// An importer that has ended has begun it; End reads how much.
	orphaned
)

// Shared is what a redirectable export shares with the one process that has it mapped: two pages,
// and the memory that may be redirected to.
type Shared struct {
	Post      shmlayout.Post
	Claim     shmlayout.Claim
	Targets   [][]byte
	LinkEnded func() bool // Reports whether the importer's link has ended.
}

// NewRedirect makes one for an export of size bytes.
func NewRedirect(e *Engine, size int) *Redirect { return &Redirect{e: e, size: uint64(size)} }

func (s *Shared) retire() {
	s.Post.Retire()
	s.Claim.Retire()
}

// Share sets the importer's pages, or nil when the importer has ended. They are released when the
// next ones come, or at the end of what was redirected by them.
func (r *Redirect) Share(s *Shared) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off, ok := r.dataEnd(); ok {
		r.end = off + shm.WordSize
	}
	if r.shared != nil {
		r.detachShared(r.shared)
	}
	r.shared, r.cleared, r.post.shared = s, 0, false
	if s != nil {
		s.Post.State().Store(shmlayout.Ending(r.gen))
		if r.state == posted && !r.ending {
			r.publish()
		}
	}
}

// detachShared ends the sharing with an importer that has ended, or that has lost its link and does
// not know yet. No other importer may claim what it has begun.
func (r *Redirect) detachShared(s *Shared) {
	s.Post.State().Store(shmlayout.Ending(r.gen)) // before the claim is loaded, as in End
	if r.state == posted && r.post.shared && s.Claim.Claimed().Load() == r.gen {
		r.state, r.orphan = orphaned, s
	} else {
		s.retire()
	}
	if invariant.Enabled {
		r.check()
	}
}

// Post redirects [off, off+len(to)) of the buffer to to. It returns false when a redirection is
// posted already. links are those whose messages may be arriving.
func (r *Redirect) Post(off uint64, to []byte, links []*Responder) bool {
	r.mu.Lock()
	if r.state != unposted {
		r.mu.Unlock()
		return false
	}
	r.gen = r.gen%shmlayout.Generations + 1
	r.post = post{gen: r.gen, lo: off, hi: off + uint64(len(to)), to: to}
	r.state, r.first, r.redirected = posted, 0, 0
	if r.shared != nil {
		r.publish()
	}
	if invariant.Enabled {
		r.check()
	}
	r.mu.Unlock()
	for _, rs := range links {
		rs.recheckRedirect(r)
	}
	return true
}

// publish tells the importer to copy into the target itself if it has that mapped, and to use the
// stream otherwise.
func (r *Redirect) publish() {
	if invariant.Enabled {
		invariant.Check(!r.shared.Post.Retired() && !r.shared.Claim.Retired(), "redirection %d is published on pages given back", r.gen)
	}
	target, offset := uint32(shmlayout.ByStream), 0
	for i, t := range r.shared.Targets {
		if off, ok := shm.Within(t, r.post.to); ok {
			target, offset = uint32(i), off
			r.post.shared = true
			r.past[r.gen%shmlayout.Credits] = r.post
			break
		}
	}
	p := r.shared.Post
	p.Low().Store(r.post.lo)
	p.High().Store(r.post.hi)
	p.Target().Store(target)
	p.Offset().Store(uint64(offset))
	p.State().Store(shmlayout.Posted(r.gen)) // after the range, which an importer reads next
}

// claimForStream claims the post for a message of the stream. It tells the importer first, so that
// no later message of its own claims it too. It returns false when an importer has claimed it
// already: one that has ended since, or a dishonest one.
func (r *Redirect) claimForStream() bool {
	s := r.shared
	if s == nil {
		return true
	}
	s.Post.State().Store(shmlayout.Ending(r.gen)) // before the claim is loaded, as in End
	return !r.post.shared || s.Claim.Claimed().Load() != r.gen
}

// End ends the redirection and returns the number of redirected bytes and the first of them in the
// target. ok is false when none was posted. On the mapped path End waits for the importer's current
// piece. On an error of the context the redirection is still posted.
func (r *Redirect) End(ctx context.Context) (n, first uint64, ok bool, err error) {
	for {
		r.mu.Lock()
		rs := r.claim
		switch {
		case r.state == unposted:
			r.mu.Unlock()
			return 0, 0, false, nil
		case r.state == orphaned || r.state == posted && r.post.shared:
			s, g := r.orphan, r.gen
			if s == nil {
				s = r.shared
			}
			r.ending = true
			// before the claim is loaded: the importer stores its claim and then loads this
			s.Post.State().Store(shmlayout.Ending(g))
			r.mu.Unlock()
			return r.endShared(ctx, s, g)
		case rs == nil:
			n, first = r.redirected, r.first
			r.reset()
			r.mu.Unlock()
			return n, first, true, nil
		}
		r.mu.Unlock()
		r.stopClaim(rs)
	}
}

// stopClaim ends the redirection of the message that rs receives, if that has claimed the post.
func (r *Redirect) stopClaim(rs *Responder) {
	rs.rmu.Lock() // nothing is received meanwhile
	defer rs.rmu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claim == rs {
		rs.stopRedirect()
	}
}

func (r *Redirect) reset() {
	if invariant.Enabled {
		r.check()
	}
	if r.orphan != nil {
		r.orphan.retire()
	}
	if r.shared != nil { // the importer need not use the stream any more
		r.shared.Post.State().Store(shmlayout.Ending(r.gen))
	}
	r.state, r.claim, r.post, r.orphan, r.ending = unposted, nil, post{}, nil, false
}

// endShared ends a redirection that an importer may be writing to.
func (r *Redirect) endShared(ctx context.Context, s *Shared, g uint32) (n, first uint64, ok bool, err error) {
	over := func() bool { return s.Claim.Claimed().Load() != g || s.Claim.Finished().Load() == g }
	gone := false
	for !over() && !gone {
		err := r.e.Wait(ctx, wait.Cond{Until: func() bool { return over() || s.LinkEnded() }})
		switch {
		case over():
		case err != nil:
			return 0, 0, true, err
		case s.LinkEnded():
			// What the importer stored before it died is visible by now, the claim's end included. An
			// importer that has only lost the link needs a moment to notice.
			grace, stop := context.WithTimeout(ctx, timeout.EndRedir)
			_ = r.e.Wait(grace, wait.Cond{Until: over})
			stop()
			gone = !over()
		default: // the importer ended its claim and has taken that back: it lives
		}
	}
	defer runtime.KeepAlive(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == unposted || r.gen != g { // another call ended it meanwhile
		return 0, 0, false, nil
	}
	defer r.reset() // reset may release the pages
	size := uint64(len(r.post.to))
	if s.Claim.Claimed().Load() != g {
		return 0, 0, true, nil
	}
	n, first = s.Claim.Done().Load(), s.Claim.First().Load()
	switch {
	case first > size || n > size-first || (n|first)%shm.WordSize != 0:
		return 0, 0, true, protocol("an importer says that it redirected %d bytes at %d of %d", n, first, size)
	case gone:
		return n, first, true, Gone("the importer has ended, or has lost its link, in the middle of a message: up to %d bytes more may have been written", redirPiece)
	}
	return n, first, true, nil
}

// Drop ends what is posted without waiting: the export ends, and with it the importer's mappings of
// the targets.
func (r *Redirect) Drop(links []*Responder) {
	r.mu.Lock()
	r.ending = true // no arriving message claims it
	if r.shared != nil {
		r.shared.Post.State().Store(shmlayout.Ending(r.gen))
	}
	r.mu.Unlock()
	for _, rs := range links {
		r.stopClaim(rs)
	}
	r.mu.Lock()
	r.reset()
	r.mu.Unlock()
}

// DataEnd returns the offset of the last word of the last message.
func (r *Redirect) DataEnd() (off uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dataEnd()
}

func (r *Redirect) dataEnd() (off uint64, ok bool) {
	if r.shared != nil {
		c := r.shared.Claim
		n := c.Messages().Load()
		off = c.End(n).Load()
		// the importer keeps sending, or lies
		for i := 0; c.Messages().Load() != n && i < 1000; i++ {
			n = c.Messages().Load()
			off = c.End(n).Load()
		}
		if n != r.cleared && off%shm.WordSize == 0 && off < r.size { // otherwise the importer lies
			return off, true
		}
	}
	return r.end - shm.WordSize, r.end != 0
}

// ClearEnd forgets it.
func (r *Redirect) ClearEnd() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = 0
	if r.shared != nil {
		r.cleared = r.shared.Claim.Messages().Load()
	}
}

// lastWordAt returns where the last word of a notification lies that an importer says it has
// redirected, or nil if that is not true.
func (r *Redirect) lastWordAt(gen uint32, off uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.past[gen%shmlayout.Credits]
	if p.gen != gen || !p.has(off) {
		return nil
	}
	return p.at(off)[:shm.WordSize]
}

// Where the data of an arriving message goes: into the export, or into the posted memory for the
// part that a posted redirection covers. All of it is called with rmu held.

// position returns how far the current message has arrived, as an offset in the export.
func (rs *Responder) position() uint64 {
	pos := rs.cur.off + rs.cur.arrived
	if rs.rx.hdr.Type != 0 {
		pos += uint64(rs.rx.hdr.Chunk) - uint64(rs.rx.need)
	}
	if invariant.Enabled {
		rs.checkPosition(pos)
	}
	return pos
}

// recheckRedirect makes the link ask again where the next byte goes, for a redirection that was
// posted while a message arrives.
func (rs *Responder) recheckRedirect(r *Redirect) {
	rs.rmu.Lock()
	if t := rs.cur.target; t != nil && t.Redirect == r && rs.rx.need > 0 {
		rs.rx.dropBuffer()
	}
	rs.rmu.Unlock()
}

// payloadBuffer returns the memory for the next of rest bytes of the chunk. It may be less; then it
// is called again. nil discards the bytes.
func (rs *Responder) payloadBuffer(rest int) []byte {
	m := &rs.cur
	if m.target == nil {
		return nil
	}
	pos := rs.position()
	end := pos + uint64(rest)
	if r := m.target.Redirect; r != nil && !m.bytes {
		return r.payloadBuffer(rs, pos, end)
	}
	return m.target.Mem[pos:end]
}

// payloadBuffer returns the memory for bytes [pos, end) of a message, or for the first of them.
func (r *Redirect) payloadBuffer(rs *Responder, pos, end uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &rs.cur
	p := &r.post
	if r.state == posted && !r.ending && !m.redirected {
		// A redirection begins at a whole word. Words that arrived before it was posted stay where
		// they are.
		from := max(p.lo, (pos+shm.WordSize-1)&^(shm.WordSize-1))
		switch {
		case from >= min(p.hi, m.off+m.size):
		case from > pos:
			return m.target.Mem[pos:min(end, from)]
		case r.claimForStream():
			r.state, r.claim, r.first, r.redirected = claimed, rs, from-p.lo, 0
			m.redirected = true
			if invariant.Enabled {
				r.check()
			}
		}
	}
	if r.state == claimed && r.claim == rs && p.has(pos) {
		// a retransmitted byte that was stored before the range was claimed
		if from := p.lo + r.first; pos < from {
			return m.target.Mem[pos:min(end, from)]
		}
		return p.at(pos)[:min(end, p.hi)-pos]
	}
	return m.target.Mem[pos:end]
}

// stopRedirect ends the redirection of the current message. The rest goes to the export. A word of
// which part has arrived goes there whole. The caller holds the redirection's lock.
func (rs *Responder) stopRedirect() {
	t := rs.cur.target
	if t == nil || t.Redirect == nil || t.Redirect.claim != rs {
		return
	}
	r := t.Redirect
	pos := rs.position()
	r.finish(pos)
	if part := pos % shm.WordSize; part > 0 && r.post.has(pos) {
		// The redirection may end because its memory cannot be accessed; then the partial word is
		// lost.
		_ = shm.TryCopyUnchecked(t.Mem[pos-part:pos], r.post.at(pos - part)[:part])
	}
	rs.rx.dropBuffer()
}

// finish fixes how much was redirected: all up to pos.
func (r *Redirect) finish(pos uint64) {
	from := r.post.lo + r.first
	// bytes that will be retransmitted have not arrived
	r.redirected = max(min(pos&^(shm.WordSize-1), r.post.hi), from) - from
	r.state, r.claim = finished, nil
	if invariant.Enabled {
		r.check()
	}
}

// placeLastWord stores a message's last word where it belongs and ends the message's redirection.
// It returns where the word lies.
func (r *Redirect) placeLastWord(rs *Responder, off uint64, word uint32) []byte {
	at := r.payloadBuffer(rs, off, off+shm.WordSize)
	storeLast(at, 0, word)
	r.mu.Lock()
	if r.claim == rs {
		r.finish(off + shm.WordSize)
	}
	r.end = off + shm.WordSize
	if r.shared != nil { // the messages that the claim page counts came before this one
		r.cleared = r.shared.Claim.Messages().Load()
	}
	r.mu.Unlock()
	return at
}

// abortRedirect ends the redirection of a message that ends in its middle.
func (rs *Responder) abortRedirect() {
	if t := rs.cur.target; t != nil && t.Redirect != nil {
		t.Redirect.mu.Lock()
		rs.stopRedirect()
		t.Redirect.mu.Unlock()
	}
}

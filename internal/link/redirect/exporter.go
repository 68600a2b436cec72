package redirect

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Exporter is the redirection of one export. Offsets and sizes are in bytes.
type Exporter struct {
	wait func(context.Context, wait.Cond) error
	size uint64 // Of the export.

	mu    sync.Mutex // Taken after a link's receive lock.
	gen   uint32     // Of the last post.
	state redirState
	post  post
	claim Link // The link whose message is being redirected.
	// First redirected byte, from the range's beginning.
	first      uint64
	redirected uint64 // Bytes redirected from there on.
	// Posts that an importer was told of, by generation, for notifications in flight.
	past [shmlayout.Credits]post

	// Offset behind the last message's last word; 0: none. Code outside of Go loads it, and stores 0,
	// without mu. See [EndOutside].
	end atomic.Uint64
	// Counts the changes of shared.
	version atomic.Uint32

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

// Link is a link on which messages arrive for the export.
type Link interface {
	// StopRedirect ends the redirection of the message that is arriving, with [Exporter.Stop], if that
	// has claimed the post. Nothing is received meanwhile.
	StopRedirect(*Exporter)
}

// Message is a message that is arriving.
type Message struct {
	Mem       []byte // Of the export.
	Off, Size uint64
	Claimed   bool // A redirection was claimed for it.
}

// redirState is the state of a redirection:
//
//	unposted --> posted --> claimed --> finished --> unposted
//	             |    '---> orphaned --> unposted
//	             '--------> unposted
//
// [Exporter.transition] alone writes it.
type redirState uint8

const (
	unposted redirState = iota
	posted
	claimed  // A message is being redirected.
	finished // The message is complete; End reads how much.
	// An importer that has ended has begun it; End reads how much.
	orphaned
)

func (s redirState) String() string {
	return [...]string{"unposted", "posted", "claimed", "finished", "orphaned"}[s]
}

var redirTransitions = state.Table[redirState]{
	unposted: {posted},
	posted:   {claimed, orphaned, unposted},
	claimed:  {finished},
	finished: {unposted},
	orphaned: {unposted},
}

// transition changes the state. The caller holds mu.
func (r *Exporter) transition(to redirState) {
	redirTransitions.Check(r.state, to)
	r.state = to
}

// Shared is what a redirectable export shares with the one process that has it mapped: two pages,
// and the memory that may be redirected to.
type Shared struct {
	Post      shmlayout.Post
	Claim     shmlayout.Claim
	Targets   [][]byte
	LinkEnded func() bool // Reports whether the importer's link has ended.

	// Messages that Claim counts and that are not the last one: they were cleared, or a message of
	// the stream came after them. Changed without mu by code outside of Go.
	cleared atomic.Uint64
}

// clear records that the messages that the claim page counts now are not the last one. Each change
// of cleared was preceded by a load of the count, so the exchange never takes back a later one.
func (s *Shared) clear() {
	for {
		seen := s.cleared.Load()
		if s.cleared.CompareAndSwap(seen, s.Claim.Messages().Load()) {
			return
		}
	}
}

// NewExporter makes one for an export of size bytes. wait returns when its condition holds, or with
// an error.
func NewExporter(wait func(context.Context, wait.Cond) error, size int) *Exporter {
	return &Exporter{wait: wait, size: uint64(size)}
}

func (s *Shared) retire() {
	s.Post.Retire()
	s.Claim.Retire()
}

// Share sets the importer's pages, or nil when the importer has ended. They are released when the
// next ones come, or at the end of what was redirected by them.
func (r *Exporter) Share(s *Shared) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version.Add(1) // before the end is read: a ClearEnd outside of Go that comes later is repeated
	if off, ok := r.dataEnd(); ok {
		r.end.Store(off + shm.WordSize)
	}
	if r.shared != nil {
		r.detachShared(r.shared)
	}
	r.shared, r.post.shared = s, false
	if s != nil {
		s.Post.State().Store(shmlayout.Ending(r.gen))
		if r.state == posted && !r.ending {
			r.publish()
		}
	}
}

// detachShared ends the sharing with an importer that has ended, or that has lost its link and does
// not know yet. No other importer may claim what it has begun.
func (r *Exporter) detachShared(s *Shared) {
	s.Post.State().Store(shmlayout.Ending(r.gen)) // before the claim is loaded, as in End
	if r.state == posted && r.post.shared && s.Claim.Claimed().Load() == r.gen {
		r.transition(orphaned)
		r.orphan = s
	} else {
		s.retire()
	}
	if invariant.Enabled {
		r.check()
	}
}

// Post redirects [off, off+len(to)) of the buffer to to. It returns false when a redirection is
// posted already. Afterwards links on which a message is arriving must ask again where it goes.
func (r *Exporter) Post(off uint64, to []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != unposted {
		return false
	}
	r.gen = r.gen%shmlayout.Generations + 1
	r.post = post{gen: r.gen, lo: off, hi: off + uint64(len(to)), to: to}
	r.transition(posted)
	r.first, r.redirected = 0, 0
	if r.shared != nil {
		r.publish()
	}
	if invariant.Enabled {
		r.check()
	}
	return true
}

// publish tells the importer to copy into the target itself if it has that mapped, and to use the
// stream otherwise.
func (r *Exporter) publish() {
	if invariant.Enabled {
		invariant.Check(!r.shared.Post.Retired() && !r.shared.Claim.Retired(),
			"redirection %d is published on pages given back", r.gen)
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
func (r *Exporter) claimForStream() bool {
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
func (r *Exporter) End(ctx context.Context) (n, first uint64, ok bool, err error) {
	for {
		r.mu.Lock()
		l := r.claim
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
		case l == nil:
			n, first = r.redirected, r.first
			r.reset()
			r.mu.Unlock()
			return n, first, true, nil
		}
		r.mu.Unlock()
		l.StopRedirect(r)
	}
}

func (r *Exporter) reset() {
	if invariant.Enabled {
		r.check()
	}
	if r.orphan != nil {
		r.orphan.retire()
	}
	if r.shared != nil { // the importer need not use the stream any more
		r.shared.Post.State().Store(shmlayout.Ending(r.gen))
	}
	if r.state != unposted {
		r.transition(unposted)
	}
	r.claim, r.post, r.orphan, r.ending = nil, post{}, nil, false
}

// endShared ends a redirection that an importer may be writing to.
func (r *Exporter) endShared(
	ctx context.Context, s *Shared, g uint32,
) (n, first uint64, ok bool, err error) {
	over := func() bool { return s.Claim.Claimed().Load() != g || s.Claim.Finished().Load() == g }
	gone := false
	for !over() && !gone {
		err := r.wait(ctx, wait.Cond{Until: func() bool { return over() || s.LinkEnded() }})
		switch {
		case over():
		case err != nil:
			return 0, 0, true, err
		case s.LinkEnded():
			// What the importer stored before it died is visible by now, the claim's end included. An
			// importer that has only lost the link needs a moment to notice.
			grace, stop := context.WithTimeout(ctx, timeout.EndRedir)
			_ = r.wait(grace, wait.Cond{Until: over})
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
		return 0, 0, true, fmt.Errorf("%w: an importer says that it redirected %d bytes at %d of %d",
			error(code.Protocol), n, first, size)
	case gone:
		return n, first, true, code.New(code.PeerGone, "the importer has ended, or has lost its link, in the middle of a message: up to %d bytes more may have been written", Piece)
	}
	return n, first, true, nil
}

// Drop ends what is posted without waiting: the export ends, and with it the importer's mappings of
// the targets.
func (r *Exporter) Drop() {
	r.mu.Lock()
	r.ending = true // no arriving message claims it
	if r.shared != nil {
		r.shared.Post.State().Store(shmlayout.Ending(r.gen))
	}
	l := r.claim
	r.mu.Unlock()
	if l != nil {
		l.StopRedirect(r)
	}
	r.mu.Lock()
	r.reset()
	r.mu.Unlock()
}

// DataEnd returns the offset of the last word of the last message.
func (r *Exporter) DataEnd() (off uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dataEnd()
}

func (r *Exporter) dataEnd() (off uint64, ok bool) {
	if r.shared != nil {
		c := r.shared.Claim
		cleared := r.shared.cleared.Load() // before the count: a message that C clears meanwhile is not the last one again
		n := c.Messages().Load()
		off = c.End(n).Load()
		// the importer keeps sending, or lies
		for i := 0; c.Messages().Load() != n && i < 1000; i++ {
			n = c.Messages().Load()
			off = c.End(n).Load()
		}
		if n != cleared && off%shm.WordSize == 0 && off < r.size { // otherwise the importer lies
			return off, true
		}
	}
	end := r.end.Load()
	return end - shm.WordSize, end != 0
}

// ClearEnd forgets it.
func (r *Exporter) ClearEnd() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end.Store(0)
	if r.shared != nil {
		r.shared.clear()
	}
}

// LastWordAt returns where the last word of a notification lies that an importer says it has
// redirected, or nil if that is not true.
func (r *Exporter) LastWordAt(gen uint32, off uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.past[gen%shmlayout.Credits]
	if p.gen != gen || !p.has(off) {
		return nil
	}
	return p.at(off)[:shm.WordSize]
}

// Place returns the memory for bytes [pos, end) of a message that l receives, or for the first of
// them: in the export, or in the posted memory for the part that the redirection covers. claims
// reports that the message has claimed the redirection just now. The caller holds l's receive lock.
func (r *Exporter) Place(l Link, m Message, pos, end uint64) (to []byte, claims bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.post
	if r.state == posted && !r.ending && !m.Claimed {
		// A redirection begins at a whole word. Words that arrived before it was posted stay where
		// they are.
		from := max(p.lo, (pos+shm.WordSize-1)&^(shm.WordSize-1))
		switch {
		case from >= min(p.hi, m.Off+m.Size):
		case from > pos:
			return m.Mem[pos:min(end, from)], false
		case r.claimForStream():
			r.transition(claimed)
			r.claim, r.first, r.redirected = l, from-p.lo, 0
			claims = true
			if invariant.Enabled {
				r.check()
			}
		}
	}
	if r.state == claimed && r.claim == l && p.has(pos) {
		// a retransmitted byte that was stored before the range was claimed
		if from := p.lo + r.first; pos < from {
			return m.Mem[pos:min(end, from)], claims
		}
		return p.at(pos)[:min(end, p.hi)-pos], claims
	}
	return m.Mem[pos:end], claims
}

// Stop ends the redirection of the message that l receives, which has arrived up to pos, and
// reports whether there was one. The rest goes to mem, the export. A word of which part has arrived
// goes there whole. The caller holds l's receive lock.
func (r *Exporter) Stop(l Link, pos uint64, mem []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claim != l {
		return false
	}
	r.finish(pos)
	if part := pos % shm.WordSize; part > 0 && r.post.has(pos) {
		// The redirection may end because its memory cannot be accessed; then the partial word is
		// lost.
		_ = shm.TryCopyUnchecked(mem[pos-part:pos], r.post.at(pos - part)[:part])
	}
	return true
}

// finish fixes how much was redirected: all up to pos.
func (r *Exporter) finish(pos uint64) {
	from := r.post.lo + r.first
	// bytes that will be retransmitted have not arrived
	r.redirected = max(min(pos&^(shm.WordSize-1), r.post.hi), from) - from
	r.transition(finished)
	r.claim = nil
	if invariant.Enabled {
		r.check()
	}
}

// MessageStored records that a message of l, whose last word lies before end, is stored, and ends
// its redirection. The caller holds l's receive lock.
func (r *Exporter) MessageStored(l Link, end uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claim == l {
		r.finish(end)
	}
	r.end.Store(end)
	if r.shared != nil { // the messages that the claim page counts came before this one
		r.shared.clear()
	}
}

// check checks the states of a redirection. The caller holds mu.
func (r *Exporter) check() {
	size := r.post.hi - r.post.lo
	invariant.Check((r.claim != nil) == (r.state == claimed),
		"redirection %d is in state %v, with a claim: %v", r.gen, r.state, r.claim != nil)
	invariant.Check((r.orphan != nil) == (r.state == orphaned), "redirection %d is in state %v, with an importer's that is no more: %v", r.gen, r.state, r.orphan != nil)
	invariant.Check(r.post.lo <= r.post.hi && size == uint64(len(r.post.to)),
		"redirection %d of [%d, %d) to %d bytes", r.gen, r.post.lo, r.post.hi, len(r.post.to))
	invariant.Check(r.state == unposted && size == 0 || r.state != unposted && r.post.gen == r.gen,
		"redirection %d is in state %v, posted was %d", r.gen, r.state, r.post.gen)
	if r.state == claimed || r.state == finished {
		invariant.Check(r.first <= size && r.redirected <= size-r.first,
			"%d bytes at %d of %d are redirected", r.redirected, r.first, size)
	}
}

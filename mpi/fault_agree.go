package mpi

import (
	"context"
	"encoding/binary"
	"errors"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// An agreement is a protocol of the ranks of a communicator that live. docs/models/agree.pml is a model
// of it.
//
//   - The leader is the first rank that is not gone. Each other rank tells it what it gives, or the
//     proposal that it has adopted, and no longer follows an earlier leader.
//   - When the leader has heard all ranks that live, it proposes: what the latest leader has
//     proposed of whom any of them has adopted a proposal, or the combination of what they give. All
//     adopt it, and say so.
//   - When all that live have adopted it, it is decided, and the leader tells all. Each rank tells all
//     others before it returns.
//
// So a decision was adopted by all ranks that live, and each later leader proposes the same. A
// rank that has returned has no part in the protocol any more: nobody waits for it in vain, because it
// has told all others. Ranks notice that one has ended when they have taken all that it had sent.
//
// Messages have the context that is never revoked, and the number of the agreement as tag. No
// send is waited for: one that finds no room goes on by itself.

// opinion is what a rank gives to an agreement, or what is proposed or decided.
type opinion struct {
	flags   uint64
	context uint64 // of the communicator that Shrink makes; the leader gives it
	gone    ranks  // that are known to be gone
	acked   ranks  // that were acknowledged
}

// ranks is a set of ranks of a communicator.
type ranks []byte

func newRanks(n int) ranks        { return make(ranks, (n+7)/8) }
func (s ranks) add(rank int)      { s[rank/8] |= 1 << (rank % 8) }
func (s ranks) has(rank int) bool { return s[rank/8]&(1<<(rank%8)) != 0 }

// merge combines what two ranks give.
func (o *opinion) merge(p opinion) {
	o.flags &= p.flags
	for i := range o.gone {
		o.gone[i] |= p.gone[i]
		o.acked[i] &= p.acked[i]
	}
}

// The kinds of messages of an agreement.
const (
	tells    = iota + 1 // what the sender gives, or has adopted
	proposes            // by a leader
	adopts              // the proposal of the leader that is told
	decides
)

// statement is a message of an agreement.
type statement struct {
	kind   byte
	leader int32 // whose proposal it is; -1: nobody's
	opinion
}

const statementHead = 24

func (s *statement) encode() []byte {
	b := make([]byte, statementHead, statementHead+2*len(s.gone))
	b[0] = s.kind
	le := binary.LittleEndian
	le.PutUint32(b[4:], uint32(s.leader))
	le.PutUint64(b[8:], s.flags)
	le.PutUint64(b[16:], s.context)
	return append(append(b, s.gone...), s.acked...)
}

func decodeStatement(b []byte) (s statement) {
	le := binary.LittleEndian
	s.kind, s.leader, s.flags, s.context = b[0], int32(le.Uint32(b[4:])), le.Uint64(b[8:]), le.Uint64(b[16:])
	sets := b[statementHead:]
	s.gone, s.acked = ranks(sets[:len(sets)/2]), ranks(sets[len(sets)/2:])
	return s
}

// early is a statement of a later agreement than the present one.
type early struct {
	from int
	s    statement
}

// agreements are those of a communicator. They run one after another, in the order of the calls.
// Guarded by Comm.mu, but for early, which the present one uses alone.
type agreements struct {
	seq   uint32
	last  chan struct{} // closed when the latest one is over; nil: there was none
	early map[int][]early
}

// agreement is one that is under way. run may be called again after an error of its context.
type agreement struct {
	c        *Comm
	call     string
	tag      int
	previous chan struct{}
	over     chan struct{}

	mine     opinion // what this rank gives, has adopted, or, at the end, what is decided
	adopted  int     // the leader whose proposal mine is; -1: none
	follows  int     // the latest leader that this rank has told; proposals of earlier ones do not count
	gone     []bool  // as this rank knows
	told     map[int]statement
	proposed bool
	agreed   []bool // ranks that have adopted this rank's proposal
}

// newAgreement begins an agreement.
func (c *Comm) newAgreement(call string, flags uint64) *agreement {
	n := len(c.ranks)
	a := &agreement{
		c: c, call: call, over: make(chan struct{}), adopted: -1, follows: -1,
		mine: opinion{flags: flags, gone: newRanks(n), acked: newRanks(n)},
		gone: make([]bool, n), told: map[int]statement{}, agreed: make([]bool, n),
	}
	acked := c.Group().with(c.ackedRanks())
	for rank, process := range c.ranks {
		if acked.find(process) != Undefined {
			a.mine.acked.add(rank)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agreements.seq++
	a.tag = int(c.agreements.seq & MaxTag)
	a.previous, c.agreements.last = c.agreements.last, a.over
	return a
}

// await waits until the agreement before is over.
func (a *agreement) await(ctx context.Context) error {
	if a.previous == nil {
		return nil
	}
	select {
	case <-a.previous:
		return nil
	case <-ctx.Done():
		return &Error{Call: a.call, Arg: "ctx", Class: ErrCanceled, Err: context.Cause(ctx)}
	}
}

// done lets the next agreement begin, when those before are over.
func (a *agreement) done() {
	previous := a.previous
	if previous == nil {
		close(a.over)
		return
	}
	select {
	case <-previous:
		close(a.over)
	default: // the context has ended before
		go func() {
			<-previous
			close(a.over)
		}()
	}
}

// run takes part until the decision, which is mine then.
func (a *agreement) run(ctx context.Context) error {
	pair.At("agree.begins")
	a.notice()
	for {
		if decided, err := a.act(); decided || err != nil {
			return err
		}
		from, s, err := a.receive(ctx)
		if errors.Is(err, ErrProcFailed) {
			a.notice()
			continue
		}
		if err != nil {
			return err
		}
		if decided, err := a.take(from, s); decided || err != nil {
			return err
		}
	}
}

// notice learns which ranks are gone.
func (a *agreement) notice() {
	failed := a.c.Group().with(a.c.j.e.Failed(a.c.ranks))
	for rank, process := range a.c.ranks {
		a.gone[rank] = failed.find(process) != Undefined
	}
}

// leader is the first rank that is not gone.
func (a *agreement) leader() int {
	for rank, gone := range a.gone {
		if !gone {
			return rank
		}
	}
	return a.c.rank // not reached: this rank is not gone
}

// each calls f for all other ranks that are not gone, until it returns false.
func (a *agreement) each(f func(rank int) bool) bool {
	for rank, gone := range a.gone {
		if !gone && rank != a.c.rank && !f(rank) {
			return false
		}
	}
	return true
}

// act does what this rank's role asks for. It reports whether there is a decision.
func (a *agreement) act() (decided bool, err error) {
	leader := a.leader()
	if leader != a.c.rank {
		if a.follows < leader {
			a.follows = leader
			err = a.send(leader, statement{tells, int32(a.adopted), a.given()})
			pair.At("agree.told")
		}
		return false, err
	}
	a.follows = leader
	if !a.proposed {
		if !a.each(func(rank int) bool { _, ok := a.told[rank]; return ok }) {
			return false, nil
		}
		a.choose()
		a.proposed = true
		if err := a.tellAll(statement{proposes, int32(leader), a.mine}, leader, "agree.proposed"); err != nil {
			return false, err
		}
	}
	if !a.each(func(rank int) bool { return a.agreed[rank] }) {
		return false, nil
	}
	pair.At("agree.decided")
	return true, a.tellAll(statement{decides, int32(leader), a.mine}, leader, "agree.decides")
}

// given is what this rank tells a leader.
func (a *agreement) given() opinion {
	if a.adopted < 0 {
		for rank, gone := range a.gone {
			if gone {
				a.mine.gone.add(rank)
			}
		}
	}
	return a.mine
}

// choose chooses what this rank proposes.
func (a *agreement) choose() {
	latest := statement{leader: int32(a.adopted), opinion: a.given()}
	for _, s := range a.told {
		if s.leader > latest.leader {
			latest = s
		}
	}
	a.mine = latest.opinion
	if latest.leader < 0 {
		for _, s := range a.told {
			a.mine.merge(s.opinion)
		}
		a.mine.context = a.c.j.e.NewContext()
	}
	a.adopted = a.c.rank
}

// take takes a statement. It reports whether there is a decision.
func (a *agreement) take(from int, s statement) (decided bool, err error) {
	switch s.kind {
	case tells:
		a.told[from] = s
	case proposes:
		if from < a.follows {
			return false, nil // a leader that has ended
		}
		a.mine, a.adopted, a.follows = s.opinion, from, from
		pair.At("agree.adopted")
		err := a.send(from, statement{kind: adopts, leader: int32(from), opinion: a.mine})
		pair.At("agree.answered")
		return false, err
	case adopts:
		a.agreed[from] = true
	case decides:
		a.mine = s.opinion
		return true, a.tellAll(s, from, "agree.passed")
	}
	return false, nil
}

// tellAll tells all ranks that live, but one and this one.
func (a *agreement) tellAll(s statement, but int, step string) (err error) {
	a.each(func(rank int) bool {
		if rank != but {
			err = a.send(rank, s)
			pair.At(step)
		}
		return err == nil
	})
	return err
}

// send sends a statement. A rank that is gone does not matter.
func (a *agreement) send(to int, s statement) error {
	c := a.c
	t := engine.Target{
		Context: engine.OutOfBand(c.id), Rank: c.ranks[to], Source: c.rank, Tag: a.tag, Group: c.ranks,
	}
	q, err := c.j.e.Isend(&t, s.encode(), engine.Standard)
	if err = wrap(a.call, err); err == nil {
		q.Free()
	}
	if errors.Is(err, ErrProcFailed) {
		return nil
	}
	return err
}

// receive waits for a statement, or until another rank is gone: that is [ErrProcFailed].
func (a *agreement) receive(ctx context.Context) (from int, s statement, err error) {
	c := a.c
	if list := c.agreements.early[a.tag]; len(list) > 0 {
		first := list[0]
		if c.agreements.early[a.tag] = list[1:]; len(list) == 1 {
			delete(c.agreements.early, a.tag)
		}
		return first.from, first.s, nil
	}
	var known []int
	for rank, gone := range a.gone {
		if gone {
			known = append(known, c.ranks[rank])
		}
	}
	source := engine.Source{
		Context: engine.OutOfBand(c.id), Rank: AnySource, Source: AnySource, Tag: AnyTag, Group: c.ranks, Acked: known,
	}
	for {
		b := make([]byte, statementHead+2*len(a.mine.gone))
		st, err := c.j.e.Recv(ctx, &source, b)
		if err != nil {
			return 0, s, wrap(a.call, err)
		}
		if st.Bytes != len(b) {
			return 0, s, fail(a.call, "", ErrOther, "rank %d of %s breaks the protocol: a statement of %d bytes, want %d",
				st.Source, c.Name(), st.Bytes, len(b))
		}
		s := decodeStatement(b)
		switch ahead := (st.Tag - a.tag) & MaxTag; {
		case ahead == 0:
			return st.Source, s, nil
		case ahead < MaxTag/2: // of an agreement that this rank comes to later
			if c.agreements.early == nil {
				c.agreements.early = map[int][]early{}
			}
			c.agreements.early[st.Tag] = append(c.agreements.early[st.Tag], early{st.Source, s})
		} // otherwise of one that is over
	}
}

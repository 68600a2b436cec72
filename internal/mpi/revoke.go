package mpi

import (
	"encoding/binary"
	"slices"

	"github.com/vmmc-go/vmmc/internal/pair"
)

// A communicator has two contexts: an even one for messages, and the next one for collectives. A rank
// that has learned that they are revoked refuses all calls that name them. Survivors of a failure agree
// on what to do next in a third context, which is never revoked.
//
// Revocations reach all ranks that live, also when the rank that has revoked dies: each rank sends a
// revocation to all others of the communicator before its own calls fail by it.

// outOfBand marks the context that is never revoked. Ranks of jobs are far fewer than 2^28, so no context
// of NewContext has the bit. They are far fewer than 2^26, too.
const outOfBand = 1 << 63

// OutOfBand returns the context of a communicator that is never revoked. Its tags may be negative.
func OutOfBand(context uint64) uint64 { return context | 1 | outOfBand }

// withinGroup marks the context of a collective's messages within a group of an intercommunicator. It is
// revoked with the intercommunicator.
const withinGroup = 1 << 61

// LocalContext returns the context of the messages within each group of an intercommunicator.
func LocalContext(context uint64) uint64 { return context | withinGroup }

// shadow marks the contexts of messages that a library keeps apart from those of a communicator. They are
// revoked with the communicator.
const shadow = 1 << 60

// shadowOfShadow marks those of a shadow's shadow.
const shadowOfShadow = 1 << 59

// ShadowContext returns a context that all ranks of a communicator know, and no other communicator has. The
// shadow of a shadow's shadow is itself.
func ShadowContext(context uint64) uint64 { return context | context&shadow>>1 | shadow }

// communicator is the context that names a communicator in a revocation.
func communicator(context uint64) uint64 {
	return context &^ (withinGroup | shadow | shadowOfShadow | 1)
}

// maxRevoked bounds what a rank remembers of revocations, each of which takes a few dozen bytes.
const maxRevoked = 1 << 20

// notice is a revocation that waits for room.
type notice struct {
	context uint64
	ranks   []byte // payload
}

// Revoke has all calls of a communicator end with ErrRevoked, at all its ranks. group are its ranks
// in the job.
func (e *Engine) Revoke(context uint64, group []int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return Fail(ErrOther, "", "MPI is finalized")
	case len(e.revoked) >= maxRevoked:
		return Fail(ErrOther, "", "this rank knows of %d revoked communicators, and keeps no more", maxRevoked)
	}
	e.revoke(context, group)
	return nil
}

// Revoked reports whether this rank knows that a communicator is revoked.
func (e *Engine) Revoked(context uint64) bool {
	e.step()
	return e.Usable(context) != nil
}

// Usable is the error of calls that name a revoked context.
func (e *Engine) Usable(context uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.usable(context)
}

// Failed lists the ranks of a group that are gone, in the order in which this rank has noticed it. So a
// later list begins with an earlier one.
func (e *Engine) Failed(group []int) []int {
	e.step()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failEnded()
	var failed []int
	for _, rank := range e.failed {
		if slices.Contains(group, rank) {
			failed = append(failed, rank)
		}
	}
	return failed
}

// All that follows is called with mu held, but Request.Free.

// usable is the error of calls that name a revoked context.
func (e *Engine) usable(context uint64) error {
	if len(e.revoked) == 0 {
		return nil
	}
	if _, ok := e.revoked[communicator(context)]; !ok {
		return nil
	}
	return Fail(ErrRevoked, "comm",
		"the communicator is revoked: make one of the ranks that live by Shrink, and use that")
}

// revoke notes a revocation, sends it to all others of the group, and ends what uses the communicator.
func (e *Engine) revoke(context uint64, group []int) {
	if _, ok := e.revoked[context]; ok {
		return
	}
	e.revoked[context] = struct{}{}
	n := notice{context: context}
	for _, rank := range group {
		n.ranks = binary.LittleEndian.AppendUint32(n.ranks, uint32(rank))
	}
	all := len(group) == e.size
	for _, rank := range group {
		if pr := e.peers[rank]; pr.port != nil && len(n.ranks) > min(pr.port.MaxPacket(), maxPayload) {
			all = true // ranks that are not in the communicator do not mind
		}
	}
	for _, pr := range e.peers {
		if pr.port == nil || pr.err != nil || !all && !slices.Contains(group, pr.rank) {
			continue
		}
		if all {
			n.ranks = nil
		}
		pr.notices = append(pr.notices, n)
		pr.pump()
		pair.At("revoke.told")
	}
	e.endRevoked(context)
}

// endRevoked ends all requests of a communicator, and forgets the messages that no receive takes any
// more. An envelope without data stays until its sender, which learns of the revocation too,
// withdraws it.
func (e *Engine) endRevoked(context uint64) {
	why := e.usable(context)
	for _, s := range e.requests {
		if r := s.r; r != nil && r.kind != general && r.kind != pinging && communicator(r.v.context) == context {
			r.abandon(why)
		}
	}
	for i := len(e.probers) - 1; i >= 0; i-- {
		if r := e.probers[i]; communicator(r.v.context) == context {
			e.probers = slices.Delete(e.probers, i, i+1)
			r.finish(why)
		}
	}
	e.q.each(unexpected, func(i uint32, n entry) {
		if communicator(n.context()) != context || n.kind() != entryEager {
			return
		}
		v := n.get()
		e.q.remove(unexpected, i)
		e.q.load(nil, v.cell)
		e.peers[v.rank].release(cellsOf(int(v.length)))
	})
}

// revocationArrived takes a revocation. A rank may get it before it has the communicator.
func (pr *peer) revocationArrived(h *Header, data []byte) error {
	e := pr.e
	if h.context != communicator(h.context) || h.context&outOfBand != 0 || len(data)%4 != 0 {
		return pr.violation("a revocation of context %d with %d bytes", h.context, len(data))
	}
	group := make([]int, 0, e.size)
	for ; len(data) > 0; data = data[4:] {
		rank := binary.LittleEndian.Uint32(data)
		if int64(rank) >= int64(e.size) || len(group) == e.size {
			return pr.violation("a revocation for rank %d in a job of %d ranks", rank, e.size)
		}
		group = append(group, int(rank))
	}
	if len(group) == 0 {
		for rank := range e.size {
			group = append(group, rank)
		}
	}
	if !slices.Contains(group, pr.rank) {
		return pr.violation("a revocation for ranks of which it is none")
	}
	if len(e.revoked) >= maxRevoked {
		return pr.violation("more than %d communicators are revoked", maxRevoked)
	}
	pair.At("revoke.arrived")
	e.revoke(h.context, group)
	return nil
}

// sendNotices sends revocations, and reports whether there was room for all.
func (pr *peer) sendNotices() bool {
	for len(pr.notices) > 0 {
		pr.h = Header{kind: kindRevoke, context: pr.notices[0].context}
		if !pr.send(pr.notices[0].ranks) {
			return false
		}
		if pr.notices = pr.notices[1:]; len(pr.notices) == 0 {
			pr.notices = nil
		}
	}
	return true
}

// drop forgets a message that a matched probe has taken.
func (m *Message) drop() {
	from := m.e.peers[m.v.rank]
	switch {
	case m.v.kind == entryEager:
		m.e.q.load(nil, m.v.cell)
		from.release(cellsOf(int(m.v.length)))
	case from.port != nil && from.err == nil: // the sender waits for an answer
		from.control = append(from.control, Header{kind: kindCTS, flags: flagDiscard, sreq: m.v.request})
		from.pump()
	}
}

// Free ends the caller's interest in a send whose memory nothing writes any more (MPI_Request_free). The
// message goes on. Finish waits for it only if a receive has matched it.
func (r *Request) Free() {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.state == over || r.abandoned {
		return
	}
	r.abandoned, r.detached = true, true
	r.tell(nil)
}

// Exclude regards ranks as gone, because the ranks of a communicator have agreed that they are. What
// they have sent before is there.
func (e *Engine) Exclude(ranks []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rank := range ranks {
		pr := e.peers[rank]
		if e.closed || pr.port == nil || pr.err != nil {
			continue
		}
		err := pr.port.Poll()
		if err == nil {
			err = Fail(ErrProcFailed, "", "other ranks have found that it has ended, or cannot reach it")
		}
		pr.fail(err)
	}
}

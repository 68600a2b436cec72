package link

import (
	"github.com/vmmc-go/vmmc/internal/invariant"
)

// What the protocols of a link promise of this side's own state. All of it is
// called only where invariant.Enabled, under the lock of what it looks at.

// checkHeld is for what only the token's holder does.
func (s *stream) checkHeld(what string) {
	invariant.Check(s.token.Load() != free, "%s on link %d without its token", what, s.id)
}

// checkClear is for what is written before anything else; tmu is held.
func (s *stream) checkClear() {
	t := &s.tx
	invariant.Check(t.gone == t.begun && t.first == 0 && t.count == 0, "%d of %d frames are written, parts %d to %d", t.gone, t.begun, t.first, t.count)
}

func (o *Out) checkAcked() {
	a, n := o.acked.Load(), o.seq.Load()
	invariant.Check(a <= n, "message %d is acknowledged, %d was the last", a, n)
}

// checkInbox: numbers are given in the order in which messages come; imu is held.
func (o *Out) checkInbox() {
	n := o.seq.Load()
	for i := range o.inbox.len() {
		want := n - uint64(o.inbox.len()-1-i)
		invariant.Check(o.inbox.at(i).seq == want, "message %d has come in the place of %d, the last is %d", o.inbox.at(i).seq, want, n)
	}
}

// checkQueue: a synchronous message gets a number only when nothing is queued.
func (o *Out) checkQueue() {
	for i := range o.queue.len() {
		want := o.written.Load() + 1 + uint64(i)
		invariant.Check(o.queue.at(i).seq == want, "message %d is queued in the place of %d, %d was written", o.queue.at(i).seq, want, o.written.Load())
	}
}

// checkWritten: frames go in the order of numbers. The end of the link drops what
// is queued.
func (o *Out) checkWritten(seq uint64) {
	n := o.seq.Load()
	invariant.Check(o.err() != nil || seq == o.written.Load()+1 && seq <= n, "message %d is written after %d, the last is %d", seq, o.written.Load(), n)
}

// checkSerial: each notification that has a serial took a credit before, and none
// of these was given back by this side; nmu is held. How many the peer has
// returned is its word alone.
func (o *Out) checkSerial() {
	taken := o.taken.Load()
	invariant.Check(int32(taken-o.serial) >= 0, "notification %d, %d credits were taken", o.serial, taken)
}

// checkGets: questions are in the order of their numbers, and no more than an
// exporter bears; gmu is held.
func (o *Out) checkGets() {
	invariant.Check(len(o.gets) <= maxFetches, "%d gets are not answered, at most %d may be", len(o.gets), maxFetches)
	for i := 1; i < len(o.gets); i++ {
		invariant.Check(o.gets[i-1].seq < o.gets[i].seq, "get %d was asked after %d", o.gets[i].seq, o.gets[i-1].seq)
	}
}

// check: all that was begun is over or listed; mu is held.
func (b *backlog) check() {
	begun, over, slow := b.begun.Load(), b.over.Load(), 0
	for _, d := range b.ops {
		if d.slow {
			slow++
		}
	}
	invariant.Check(begun-over == uint64(len(b.ops)) && int(b.left.Load()) == len(b.ops), "%d operations were put off, %d are over, %d listed", begun, over, len(b.ops))
	invariant.Check(slow == b.slow, "%d operations that are listed may wait, counted are %d", slow, b.slow)
}

// checkMessage: what data has let pass; rmu is held.
func (in *In) checkMessage() {
	m := &in.cur
	invariant.Check(m.active && m.seq == in.applied.Load()+1, "message %d arrives after %d", m.seq, in.applied.Load())
	invariant.Check(m.done <= m.size, "%d bytes of message %d have arrived, it has %d", m.done, m.seq, m.size)
	if t := m.target; t != nil {
		n := uint64(len(t.Mem))
		invariant.Check(m.base <= n && m.size <= n-m.base, "message %d of %d bytes at %d, the export has %d", m.seq, m.size, m.base, n)
	}
}

func (in *In) checkPosition(pos uint64) {
	m := &in.cur
	invariant.Check(!m.active || m.base <= pos && pos <= m.base+m.size, "message %d of %d bytes at %d has arrived up to %d", m.seq, m.size, m.base, pos)
}

// check: the states of a redirection; mu is held.
func (r *Redirect) check() {
	size := r.post.hi - r.post.lo
	invariant.Check((r.claim != nil) == (r.state == claimed), "redirection %d is in state %d, with a claim: %v", r.gen, r.state, r.claim != nil)
	invariant.Check((r.left != nil) == (r.state == parted), "redirection %d is in state %d, with an importer's that is no more: %v", r.gen, r.state, r.left != nil)
	invariant.Check(r.post.lo <= r.post.hi && size == uint64(len(r.post.to)), "redirection %d of [%d, %d) to %d bytes", r.gen, r.post.lo, r.post.hi, len(r.post.to))
	invariant.Check(r.state == unposted && size == 0 || r.state != unposted && r.post.gen == r.gen, "redirection %d is in state %d, posted was %d", r.gen, r.state, r.post.gen)
	if r.state == claimed || r.state == finished {
		invariant.Check(r.first <= size && r.n <= size-r.first, "%d bytes at %d of %d are redirected", r.n, r.first, size)
	}
}

// check: one handler at a time, and no more levels undone than there were; mu is held.
func (q *noteQueue) check(busy bool) {
	invariant.Check(q.busy == busy, "a handler runs: %v, should be %v", q.busy, busy)
	invariant.Check(q.level >= 0 && q.inner >= 0 && (q.busy || q.inner == 0), "notifications are blocked %d and %d times", q.level, q.inner)
}

// checkSilent: what came has made nothing to be sent, and what others have was sent or is stuck; rmu is held.
func (in *In) checkSilent() {
	in.tmu.Lock()
	defer in.tmu.Unlock()
	t := &in.tx
	invariant.Check(in.torn.Load() || t.stuck.Load() || t.calm() && !in.ackDue && len(in.replies) == 0,
		"nothing to say, and there are %d frames unsent, %d answers, %d control frames, %d grants, an acknowledgement: %v",
		t.begun-t.gone, len(in.replies), len(t.ctl), len(t.grants), in.ackDue)
}

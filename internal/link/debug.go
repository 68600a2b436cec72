package link

import (
	"github.com/vmmc-go/vmmc/internal/invariant"
)

// Invariants of a link's own state. They are called only where invariant.Enabled, under the lock of
// the state that they check.

// checkHeld checks what only the token's holder may do.
func (s *stream) checkHeld(what string) {
	invariant.Check(s.token.State() != tokenFree, "%s on link %d without its token", what, s.id)
}

// checkClear checks that nothing is queued. The caller holds tmu.
func (s *stream) checkClear() {
	t := &s.tx
	invariant.Check(t.framesWritten == t.framesQueued && t.firstPart == 0 && t.partCount == 0, "%d of %d frames are written, parts %d to %d", t.framesWritten, t.framesQueued, t.firstPart, t.partCount)
}

func (rq *Requester) checkAcked() {
	a, n := rq.ackedSeq.Load(), rq.lastSeq.Load()
	invariant.Check(a <= n, "message %d is acknowledged, %d was the last", a, n)
}

// checkInbox checks that numbers are given in the order of messages. The caller holds inboxMu.
func (rq *Requester) checkInbox() {
	n := rq.lastSeq.Load()
	for i := range rq.inbox.len() {
		want := n - uint64(rq.inbox.len()-1-i)
		invariant.Check(rq.inbox.at(i).seq == want,
			"message %d has come in the place of %d, the last is %d", rq.inbox.at(i).seq, want, n)
	}
}

// checkQueue checks that no synchronous message gets a number while messages are queued.
func (rq *Requester) checkQueue() {
	for i := range rq.queue.len() {
		want := rq.writtenSeq.Load() + 1 + uint64(i)
		invariant.Check(rq.queue.at(i).seq == want, "message %d is queued in the place of %d, %d was written", rq.queue.at(i).seq, want, rq.writtenSeq.Load())
	}
}

// checkWritten checks that frames are written in the order of numbers. The end of the link drops
// the queue.
func (rq *Requester) checkWritten(seq uint64) {
	n := rq.lastSeq.Load()
	invariant.Check(rq.err() != nil || seq == rq.writtenSeq.Load()+1 && seq <= n,
		"message %d is written after %d, the last is %d", seq, rq.writtenSeq.Load(), n)
}

// checkSerial checks that each notification with a serial took a credit that this side has not
// returned. The total returned by the peer is the peer's claim alone. The caller holds notifyMu.
func (rq *Requester) checkSerial() {
	taken := rq.creditsTaken.Load()
	invariant.Check(int32(taken-rq.lastSerial) >= 0,
		"notification %d, %d credits were taken", rq.lastSerial, taken)
}

// check checks that fetches are in the order of their numbers and no more than an exporter accepts.
// The caller holds mu.
func (t *fetchTable) check() {
	invariant.Check(len(t.list) <= maxFetches,
		"%d gets are not answered, at most %d may be", len(t.list), maxFetches)
	for i := 1; i < len(t.list); i++ {
		invariant.Check(t.list[i-1].seq < t.list[i].seq,
			"get %d was asked after %d", t.list[i].seq, t.list[i-1].seq)
	}
}

// check checks that all deferred operations are done or listed. The caller holds mu.
func (b *backlog) check() {
	begun, over, slow := b.deferredTotal.Load(), b.doneTotal.Load(), 0
	for _, d := range b.ops {
		if d.mayWait {
			slow++
		}
	}
	invariant.Check(begun-over == uint64(len(b.ops)) && int(b.pending.Load()) == len(b.ops),
		"%d operations were put off, %d are over, %d listed", begun, over, len(b.ops))
	invariant.Check(slow == b.mayWaitCount,
		"%d operations that are listed may wait, counted are %d", slow, b.mayWaitCount)
}

// checkMessage checks the state that checkData has allowed. The caller holds rmu.
func (rs *Responder) checkMessage() {
	m := &rs.cur
	invariant.Check(m.active && m.seq == rs.appliedSeq.Load()+1,
		"message %d arrives after %d", m.seq, rs.appliedSeq.Load())
	invariant.Check(m.arrived <= m.size,
		"%d bytes of message %d have arrived, it has %d", m.arrived, m.seq, m.size)
	if t := m.target; t != nil {
		n := uint64(len(t.Mem))
		invariant.Check(m.off <= n && m.size <= n-m.off,
			"message %d of %d bytes at %d, the export has %d", m.seq, m.size, m.off, n)
	}
}

func (rs *Responder) checkPosition(pos uint64) {
	m := &rs.cur
	invariant.Check(!m.active || m.off <= pos && pos <= m.off+m.size,
		"message %d of %d bytes at %d has arrived up to %d", m.seq, m.size, m.off, pos)
}

// check checks that one handler runs at a time, and that no more blocks are undone than were made.
// The caller holds mu.
func (q *dispatcher) check(busy bool) {
	invariant.Check(q.handlerRunning == busy,
		"a handler runs: %v, should be %v", q.handlerRunning, busy)
	invariant.Check(q.blockDepth >= 0 && q.handlerBlocks >= 0 && (q.handlerRunning || q.handlerBlocks == 0), "notifications are blocked %d and %d times", q.blockDepth, q.handlerBlocks)
}

// checkNothingDue checks that the received frames made nothing to be sent, and that everything else
// was sent or is write-blocked. The caller holds rmu.
func (rs *Responder) checkNothingDue() {
	rs.tmu.Lock()
	defer rs.tmu.Unlock()
	t := &rs.tx
	invariant.Check(rs.disconnected() || t.writeBlocked.Load() || t.idle() && !rs.ackDue && len(rs.replies) == 0,
		"nothing to say, and there are %d frames unsent, %d answers, %d control frames, %d grants, an acknowledgement: %v",
		t.framesQueued-t.framesWritten, len(rs.replies), len(t.control), len(t.importAnswers), rs.ackDue)
}

// Step is one step of a transfer, for the log of a program that was built with the tag vmmcdebug.
type Step struct {
	Op     string
	Link   uint64 // This process's number of the link.
	Handle uint32
	// Of the message, or of the notification in that step.
	Seq  uint64
	Off  uint64
	Size uint64
}

// SetTracer sets the function that is called for each step, under locks of the link. It must be
// called before the first link is made.
func (e *Engine) SetTracer(f func(Step)) { e.tracer = f }

// trace is called only where invariant.Enabled.
func (s *stream) trace(op string, handle uint32, seq, off, size uint64) {
	if f := s.e.tracer; f != nil {
		f(Step{op, s.id, handle, seq, off, size})
	}
}

func (m *Mapped) trace(op string, off, size int) {
	m.req.trace(op, m.handle, 0, uint64(off), uint64(size))
}

func (m *Mapped) traceSend(off int, src []byte, more [][]byte) {
	n := len(src)
	for _, b := range more {
		n += len(b)
	}
	m.trace("mapped send", off, n)
}

// traceNumber traces a message that was given its number.
func (rq *Requester) traceNumber(m *Message, seq uint64, size int) {
	op := "send"
	if m.Notify {
		op = "send with notification"
	}
	rq.trace(op, m.Handle, seq, m.Off, uint64(size))
}

func (rq *Requester) traceFetch(op string, f *fetch) {
	if f.op != 0 {
		op += " atomic"
	} else {
		op += " get"
	}
	rq.trace(op, f.handle, f.seq, f.off, f.size)
}

func (rs *Responder) traceNotification(n notification) {
	handle := uint32(0)
	if n.target != nil {
		handle = n.target.Handle
	}
	rs.trace("notify", handle, uint64(n.serial), n.off, 4)
}

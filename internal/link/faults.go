package link

import (
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Memory of this program that cannot be read when it is sent, or written when an answer arrives.
// The fault concerns one message or one get; the link goes on.

// maxFaults bounds the messages remembered; the oldest are dropped.
const maxFaults = 1024

// sendFault is one of them.
type sendFault struct {
	seq uint64
	err error
}

// abortUnreadable makes q an abort. Its sender learns of that by its number. The caller holds tmu.
func (rq *Requester) abortUnreadable(q *outgoing, err error) {
	q.makeAbort()
	if len(rq.faults) >= maxFaults {
		rq.faults = append(rq.faults[:0], rq.faults[1:]...)
	}
	rq.faults = append(rq.faults, sendFault{q.seq, err})
	rq.hasFaults.Store(true)
}

// faultOf returns why message seq, which is complete, has not arrived if its memory is the reason.
func (rq *Requester) faultOf(seq uint64) error {
	if !rq.hasFaults.Load() {
		return nil
	}
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	for _, f := range rq.faults {
		if f.seq == seq {
			return f.err
		}
	}
	return nil
}

// abortUnreadableQueued makes aborts of queued messages whose memory cannot be read: a header that
// is written cannot be taken back. The caller holds tmu and inboxMu.
func (rq *Requester) abortUnreadableQueued() {
	for i, n := 0, rq.queue.len(); i < n; i++ {
		err := shm.Guard(func() { // one Guard for all readable messages
			for ; i < n; i++ {
				if q := rq.queue.at(i); q.fetch == nil && !q.abort {
					q.msg.touch()
				}
			}
		})
		if err != nil {
			rq.abortUnreadable(rq.queue.at(i), err)
		}
	}
}

// sendFaulted finds the message whose memory the kernel could not read, although it was readable
// before. Its queued frames cannot be taken back on this connection. The caller holds tmu.
func (rq *Requester) sendFaulted() {
	for _, p := range rq.tx.parts[rq.tx.firstPart:rq.tx.partCount] {
		if p.seq == 0 || p.copied {
			continue
		}
		if err := shm.Readable(p.payload); err != nil {
			if q := rq.unacked.find(p.seq); q != nil {
				rq.abortUnreadable(q, err)
			}
		}
	}
}

// storeFaulted discards the rest of an answer and makes its get fail. The caller holds rmu.
func (rq *Requester) storeFaulted(err error) {
	rq.fetches.storeFaulted(err)
}

// sendFaulted keeps what of an answer the kernel could not read while it was sent, since it was looked at. What is in frames
// of the answer cannot be taken back, so the connection is lost. Between nodes the link is resumed, and
// the answer is looked at again, and refused. On one node the link ends, or its importer would have an answer that
// is none; the export whose memory it was ends with it, see blamed. tmu is held.
func (rs *Responder) sendFaulted() {
	for _, p := range rs.tx.parts[rs.tx.firstPart:rs.tx.partCount] {
		if p.copied {
			continue
		}
		if err := shm.Readable(p.payload); err != nil {
			rs.unread, rs.unreadErr = p.payload, err
			return
		}
	}
}

// blamed has the export end whose memory ended the link; rmu is held.
func (rs *Responder) blamed() {
	rs.tmu.Lock()
	pay, err := rs.unread, rs.unreadErr
	rs.unread = nil
	rs.tmu.Unlock()
	if len(pay) == 0 {
		return
	}
	for _, t := range rs.targets {
		if shm.Overlap(t.Mem, pay) {
			rs.targetFaulted(t, err)
		}
	}
}

// storeFaulted discards the rest of the arriving message and ends its export. The caller holds rmu.
func (rs *Responder) storeFaulted(err error) {
	if t := rs.cur.target; t != nil {
		rs.abortRedirect()
		rs.cur.target = nil
		rs.targetFaulted(t, err)
	}
}

// targetFaulted ends the export of t, whose memory can no longer be accessed. It may be called
// under any lock.
func (rs *Responder) targetFaulted(t *Target, err error) {
	if t.Fault != nil {
		rs.e.wg.Go(func() { t.Fault(err) })
	}
}

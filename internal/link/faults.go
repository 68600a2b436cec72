package link

import (
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Memory of this program's that cannot be read when its turn comes, or not be written when an
// answer arrives. It concerns one message or one get, and the link goes on.

// maxFaults bounds what is remembered of messages that failed so; the oldest go.
const maxFaults = 1024

// sendFault is one of them.
type sendFault struct {
	seq uint64
	err error
}

// abortUnreadable makes q an abort, which its sender finds out by its number; tmu is held.
func (rq *Requester) abortUnreadable(q *outgoing, err error) {
	q.makeAbort()
	if len(rq.faults) >= maxFaults {
		rq.faults = append(rq.faults[:0], rq.faults[1:]...)
	}
	rq.faults = append(rq.faults, sendFault{q.seq, err})
	rq.hasFaults.Store(true)
}

// faultOf is why message seq, which is over, has not arrived, if its memory is the reason.
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

// abortUnreadableQueued makes aborts of what is queued and cannot be read: a header, once it is written, cannot be
// taken back. tmu and inboxMu are held, and nothing else goes by the memory.
func (rq *Requester) abortUnreadableQueued() {
	for i, n := 0, rq.queue.len(); i < n; i++ {
		err := shm.Guard(func() { // once for all that can be read
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

// sendFaulted finds out of which message the memory is that the kernel could not read while it was sent,
// since it was looked at. What is in frames of it cannot be taken back on this connection. tmu is
// held.
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

// storeFaulted makes the rest of an answer go nowhere, and its get fail; rmu is held.
func (rq *Requester) storeFaulted(err error) {
	rq.fetchMu.Lock()
	defer rq.fetchMu.Unlock()
	if f := rq.rxFetch; f != nil {
		f.dst, f.storeErr = nil, err
	}
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

// storeFaulted makes the message that is arriving go nowhere, and ends its export; rmu is held.
func (rs *Responder) storeFaulted(err error) {
	if t := rs.cur.target; t != nil {
		rs.abortRedirect()
		rs.cur.target = nil
		rs.targetFaulted(t, err)
	}
}

// targetFaulted has the export of t end, whose memory cannot be accessed any more. It may be called under
// any lock.
func (rs *Responder) targetFaulted(t *Target, err error) {
	if t.Fault != nil {
		rs.e.wg.Go(func() { t.Fault(err) })
	}
}

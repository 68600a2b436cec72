package link

import (
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Memory of this program's that cannot be read when its turn comes, or not be written when an
// answer arrives. It concerns one message or one get, and the link goes on.

// maxFaults bounds what is remembered of messages that failed so; the oldest go.
const maxFaults = 1024

// faulted is one of them.
type faulted struct {
	seq uint64
	err error
}

// unreadable makes q an abort, which its sender finds out by its number; tmu is held.
func (o *Out) unreadable(q *outgoing, err error) {
	q.forget()
	if len(o.faults) >= maxFaults {
		o.faults = append(o.faults[:0], o.faults[1:]...)
	}
	o.faults = append(o.faults, faulted{q.seq, err})
	o.faulty.Store(true)
}

// fault is why message seq, which is over, has not arrived, if its memory is the reason.
func (o *Out) fault(seq uint64) error {
	if !o.faulty.Load() {
		return nil
	}
	o.tmu.Lock()
	defer o.tmu.Unlock()
	for _, f := range o.faults {
		if f.seq == seq {
			return f.err
		}
	}
	return nil
}

// sift makes aborts of what is queued and cannot be read: a header, once it is written, cannot be
// taken back. tmu and imu are held, and nothing else goes by the memory.
func (o *Out) sift() {
	for i, n := 0, o.queue.len(); i < n; i++ {
		err := shm.Guard(func() { // once for all that can be read
			for ; i < n; i++ {
				if q := o.queue.at(i); q.f == nil && !q.abort {
					q.m.touch()
				}
			}
		})
		if err != nil {
			o.unreadable(o.queue.at(i), err)
		}
	}
}

// blame finds out of which message the memory is that the kernel could not read while it was sent,
// since it was looked at. What is in frames of it cannot be taken back on this connection. tmu is
// held.
func (o *Out) blame() {
	for _, p := range o.tx.parts[o.tx.first:o.tx.count] {
		if p.seq == 0 || p.kept {
			continue
		}
		if err := shm.Readable(p.pay); err != nil {
			if q := o.keeps.of(p.seq); q != nil {
				o.unreadable(q, err)
			}
		}
	}
}

// unwritable makes the rest of an answer go nowhere, and its get fail; rmu is held.
func (o *Out) unwritable(err error) {
	o.gmu.Lock()
	defer o.gmu.Unlock()
	if f := o.reading; f != nil {
		f.dst, f.bad = nil, err
	}
}

// blame keeps what of an answer the kernel could not read while it was sent, since it was looked at. What is in frames
// of the answer cannot be taken back, so the connection is lost. Between nodes the link is resumed, and
// the answer is looked at again, and refused. On one node the link ends, or its importer would have an answer that
// is none; the export whose memory it was ends with it, see blamed. tmu is held.
func (in *In) blame() {
	for _, p := range in.tx.parts[in.tx.first:in.tx.count] {
		if p.kept {
			continue
		}
		if err := shm.Readable(p.pay); err != nil {
			in.unread, in.unreadErr = p.pay, err
			return
		}
	}
}

// blamed has the export end whose memory ended the link; rmu is held.
func (in *In) blamed() {
	in.tmu.Lock()
	pay, err := in.unread, in.unreadErr
	in.unread = nil
	in.tmu.Unlock()
	if len(pay) == 0 {
		return
	}
	for _, t := range in.targets {
		if shm.Overlap(t.Mem, pay) {
			in.faulted(t, err)
		}
	}
}

// unwritable makes the message that is arriving go nowhere, and ends its export; rmu is held.
func (in *In) unwritable(err error) {
	if t := in.cur.target; t != nil {
		in.cut()
		in.cur.target = nil
		in.faulted(t, err)
	}
}

// faulted has the export of t end, whose memory cannot be accessed any more. It may be called under
// any lock.
func (in *In) faulted(t *Target, err error) {
	if t.Fault != nil {
		in.e.wg.Go(func() { t.Fault(err) })
	}
}

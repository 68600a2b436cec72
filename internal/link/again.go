package link

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// What an importing side sends again when its link is resumed (docs/models: resume, cancel).

// resent is one message that the exporter does not have, or not all of it.
type resent struct {
	seq   uint64
	frame []byte       // it is in one frame, of which there is a copy
	ask   *wire.Header // it is a get or an atomic
}

// detached is an import that was closed. The exporter knows if it has applied a message
// that came after that.
type detached struct {
	handle uint32
	after  uint64
}

// interrupted is called when the connection is gone, with rmu and tmu held.
func (o *Out) interrupted() {
	o.again, o.mid, o.reading = nil, false, nil
	o.asked, o.want = 0, 0
	if o.queue.len() > 0 {
		o.queue.at(0).rewind(0)
	}
	o.gmu.Lock()
	o.got = 0
	if len(o.gets) > 0 {
		o.got = uint64(o.gets[0].got)
		o.gets[0].got = 0 // a part of an answer is read again from its beginning, last word first
	}
	o.gmu.Unlock()
}

// resumed makes ready what the exporter does not have, with rmu and tmu held. lapsed are
// messages that were in frames and are given up now, because their import is closed.
func (o *Out) resumed(a *wire.Answer) (lapsed []detached, err error) {
	o.partial = a.Partial
	acked := o.acked.Load()
	if a.Applied < acked || a.Applied > o.top {
		return nil, protocol("the link is resumed after message %d, %d were acknowledged and %d sent", a.Applied, acked, o.top)
	}
	o.count.Locked(page.Duplicates, a.Applied-acked)
	o.acked.Store(a.Applied)
	o.returned.Store(uint32(a.Credits))
	o.written.Store(a.Applied)
	o.keeps.trim(a.Applied)
	o.keeps.frames(a.Applied, func(seq uint64, frame []byte) { o.again = append(o.again, resent{seq: seq, frame: frame}) })
	for i := range o.keeps.messages.len() {
		q := o.keeps.messages.at(i)
		q.rewind(0)
		o.again = append(o.again, resent{seq: q.seq})
		if q.closed && q.seq <= o.top {
			lapsed = append(lapsed, detached{q.m.Handle, q.seq - 1})
		}
	}
	o.gmu.Lock()
	for _, f := range o.gets {
		if f.seq > a.Applied && f.seq <= o.top {
			h := f.question()
			o.again = append(o.again, resent{seq: f.seq, ask: &h})
		}
	}
	o.gmu.Unlock()
	slices.SortFunc(o.again, func(a, b resent) int { return cmp.Compare(a.seq, b.seq) })
	for i, r := range o.again {
		if want := a.Applied + 1 + uint64(i); r.seq != want {
			return nil, fmt.Errorf("message %d is to be sent again and %d is not there: a fault in this program", r.seq, want)
		}
	}
	if err := o.proceed(a.Applied+1, a.Partial); err != nil {
		return nil, err
	}
	o.detaches = slices.DeleteFunc(o.detaches, func(d detached) bool { return d.after < a.Applied })
	if len(o.again) == 0 {
		o.caughtAgain()
	}
	return lapsed, nil
}

// proceed goes on in the middle of message seq, of which n bytes have arrived.
func (o *Out) proceed(seq, n uint64) error {
	if n == 0 {
		return nil
	}
	q := o.keeps.of(seq)
	if q == nil && o.queue.len() > 0 && len(o.again) == 0 && o.queue.at(0).seq == seq {
		q = o.queue.at(0)
	}
	switch {
	case q == nil || q.f != nil:
		return protocol("the link is resumed at byte %d of message %d, which has no part", n, seq)
	case n >= uint64(q.size) || !q.m.Bytes && n%4 != 0:
		return protocol("the link is resumed at byte %d of message %d, which has %d", n, seq, q.size)
	case !q.abort:
		q.rewind(int(n))
	}
	return nil
}

// nextAgain gives the next frame that is sent again.
func (o *Out) nextAgain(h *wire.Header) (payload []byte) {
	r := &o.again[0]
	over := true
	switch {
	case r.ask != nil:
		*h = *r.ask
	case r.frame != nil:
		if err := h.Recall(r.frame); err != nil {
			o.fail(err)
			o.again = nil
			return nil
		}
		payload = r.frame[wire.HeaderSize:]
	default:
		q := o.keeps.of(r.seq)
		if q.abort {
			*h = q.aborted()
		} else {
			payload = q.chunk(h, o.tx.most())
			over = q.ended()
		}
	}
	o.repeated.Add(uint64(len(payload)))
	o.count.Locked(page.ResentBytes, uint64(len(payload)))
	if over {
		o.again = o.again[1:]
		o.count.Locked(page.Resent, 1)
		o.wrote(r.seq, false)
		if len(o.again) == 0 {
			o.caughtAgain()
		}
	}
	return payload
}

// caughtAgain is called when all that was written once is written again: closed imports
// come after their messages, and who waits for an acknowledgement asks for it.
func (o *Out) caughtAgain() {
	o.again = nil
	for _, d := range o.detaches {
		o.tx.ctl = append(o.tx.ctl, wire.Header{Type: wire.Detach, Handle: d.handle})
	}
	o.askNow()
}

// giveUp takes back the memory of message seq, whose sender waits no longer. What is in
// frames goes on; sent again, it would be an abort.
func (o *Out) giveUp(seq uint64) {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	if q := o.keeps.of(seq); q != nil {
		q.forget()
		o.tx.keep()
	}
}

package link

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxFetches is how many gets and atomics may be unanswered on one link; the
// exporter ends a link that has more.
const maxFetches = 64

// fetch is a Get or an atomic that is not answered yet. Its fields but done are
// under the link's gmu once it is asked; dst is written by the engine under rmu.
type fetch struct {
	dst    []byte
	handle uint32
	id     uint32 // the buffer's
	off    uint64
	size   uint64
	seq    uint64
	got    int
	raw    bool // no last word

	op  wire.Op // of an atomic, else 0
	a   uint64  // its operands
	b   uint64
	old uint64 // its result

	bad  error // its memory could not be written
	err  error // set before done moves
	done wait.Tick
}

// Read is what a get asks for.
type Read struct {
	Handle uint32
	ID     uint32
	Off    uint64
	Dst    []byte
	Bytes  bool
	Ended  *atomic.Bool
}

var fetches = sync.Pool{New: func() any { return new(fetch) }}

func (f *fetch) set(r *Read) {
	f.dst, f.handle, f.id, f.off, f.size, f.raw = r.Dst, r.Handle, r.ID, r.Off, uint64(len(r.Dst)), r.Bytes
	f.got, f.op, f.bad, f.err = 0, 0, nil, nil
}

func (f *fetch) end(err error) {
	f.err = err
	f.done.Move()
}

// question is the frame that asks.
func (f *fetch) question() wire.Header {
	h := wire.Header{Type: wire.Get, Handle: f.handle, Seq: f.seq, Off: f.off, Size: f.size}
	if f.op != 0 {
		h.Type = wire.Atomic
		h.SetOperands(f.op, f.a, f.b)
	} else if f.raw {
		h.Flags = wire.Bytes
	}
	return h
}

// Get fetches len(r.Dst) bytes.
func (o *Out) Get(ctx context.Context, r Read) error {
	f := fetches.Get().(*fetch)
	f.set(&r)
	_, err := o.call(ctx, f, r.Ended)
	return err
}

// call asks and waits for the answer; f is not the caller's any more.
func (o *Out) call(ctx context.Context, f *fetch, ended *atomic.Bool) (old uint64, err error) {
	if err := o.caughtUp(ctx); err != nil {
		return 0, err
	}
	if err := o.turn.Take(ctx); err != nil {
		return 0, err
	}
	tick := f.done.Now()
	err = o.ask(ctx, f, ended)
	o.turn.Give()
	if err != nil {
		return 0, err
	}
	o.e.warm(&o.stream)
	if err := o.e.wait(ctx, &wait.Look{Word: f.done.Word(), Old: tick, Ended: ended, Own: true}, &o.stream); err != nil || f.done.Now() == tick {
		if o.forsake(f) {
			if err == nil {
				err = ErrEnded
			}
			if f.op != 0 {
				err = &Pending{err: unknown(err), o: o, f: f, tick: tick}
			}
			return 0, err
		}
	}
	old, err = f.old, f.err
	f.dst = nil
	fetches.Put(f)
	return old, err
}

// ask puts the request on the stream and in the queue of those unanswered.
func (o *Out) ask(ctx context.Context, f *fetch, ended *atomic.Bool) error {
	for {
		if err := o.slot(ctx); err != nil {
			return err
		}
		if f.op != 0 {
			if err := o.unread(ctx, f.id, f.off, f.size); err != nil {
				return err
			}
		}
		if err := o.only(ctx, ended); err != nil {
			return err
		}
		if o.reads.Load() < maxFetches { // with imu, under which it grows
			break
		}
		o.imu.Unlock()
		o.tmu.Unlock()
	}
	defer o.tmu.Unlock()
	if err := o.err(); err != nil { // lost has emptied the queue, or is about to
		o.imu.Unlock()
		return err
	}
	f.seq = o.seq.Load() + 1
	o.seq.Store(f.seq)
	o.expect(f)
	o.imu.Unlock()
	if o.minds {
		o.tend()
	}
	h := f.question()
	o.wrote(f.seq, false)
	if o.say(&h, nil) && !o.calm() { // there is what came meanwhile
		o.pump()
	}
	return nil
}

// expect puts f behind those unanswered; imu is held, so the order is that of
// the numbers.
func (o *Out) expect(f *fetch) {
	if f.op != 0 {
		o.count.Locked(page.Atomics, 1)
	} else {
		o.count.Locked(page.Gets, 1)
		o.count.Locked(page.GetBytes, f.size)
	}
	o.gmu.Lock()
	o.gets = append(o.gets, f)
	o.reads.Store(int32(len(o.gets)))
	if invariant.Enabled {
		o.checkGets()
		o.traceFetch("ask for a", f)
	}
	o.gmu.Unlock()
}

// slot waits until one more get may be asked; only with imu held it is still so.
func (o *Out) slot(ctx context.Context) error {
	for {
		tick := o.room.Now()
		if o.reads.Load() < maxFetches {
			return nil
		}
		if err := o.e.wait(ctx, &wait.Look{Word: o.room.Word(), Old: tick, Broken: &o.broken, Own: true}, &o.stream); err != nil {
			return err
		}
		if err := o.err(); err != nil {
			return err
		}
	}
}

// GetAsync begins a get; r.Dst is the link's until the request is done.
func (o *Out) GetAsync(ctx context.Context, r Read) (Request, error) {
	if err := o.err(); err != nil {
		return Request{}, err
	}
	f := new(fetch) // it is the request's, for as long as that is asked
	f.set(&r)
	ask := Message{Handle: r.Handle, Ended: r.Ended}
	if !o.later.busy() && o.reads.Load() < maxFetches/2 {
		if err := o.admit(ctx, &outgoing{m: ask, f: f}); err != nil {
			return Request{}, err
		}
		return Request{o: o, f: f}, nil
	}
	req, err := o.postpone(ctx, &deferred{slow: true, do: func(ctx context.Context, _ *deferred) error {
		return o.admit(ctx, &outgoing{m: ask, f: f})
	}})
	req.f = f
	return req, err
}

// forsake makes an answer that is still to come go nowhere. It returns false if
// the answer was complete before. rmu keeps the engine out of dst meanwhile.
func (o *Out) forsake(f *fetch) bool {
	o.rmu.Lock()
	defer o.rmu.Unlock()
	o.gmu.Lock()
	defer o.gmu.Unlock()
	for _, g := range o.gets {
		if g == f {
			f.dst = nil
			if o.reading == f {
				o.rx.divert()
			}
			return true
		}
	}
	return false
}

// place says where a reply's payload goes.
func (o *Out) place(rest int) []byte {
	f := o.reading
	if f == nil {
		return nil
	}
	o.gmu.Lock()
	defer o.gmu.Unlock()
	if f.dst == nil { // forsaken
		return nil
	}
	at := f.got + int(o.rx.hdr.Chunk) - rest
	return f.dst[at : at+rest]
}

// replyTo judges a reply.
func (o *Out) replyTo(h *wire.Header) error {
	sent := o.sent(h.Seq)
	o.gmu.Lock()
	defer o.gmu.Unlock()
	if len(o.gets) == 0 || o.gets[0].seq != h.Seq || o.gets[0].op != 0 || !sent {
		return protocol("a reply to %d, which was not asked for", h.Seq)
	}
	f := o.gets[0]
	span := int(h.Span())
	switch {
	case f.raw != (h.Flags&wire.Bytes != 0), h.Off != uint64(f.got):
		return protocol("reply to %d at %d, expected at %d", h.Seq, h.Off, f.got)
	case f.size != h.Size, h.Span() > f.size-uint64(f.got), (h.Flags&wire.Last != 0) != (uint64(f.got+span) == f.size):
		return protocol("reply of %d bytes to a get of %d", h.Size, f.size)
	}
	o.reading = f
	return nil
}

// fetched is called when a reply's payload is in place.
func (o *Out) fetched(h *wire.Header) {
	o.gmu.Lock()
	defer o.gmu.Unlock()
	f := o.reading
	o.reading = nil
	f.got += int(h.Span())
	if f.dst != nil && h.Flags&wire.Last != 0 && !f.raw {
		f.bad = shm.Guard(func() { setLastWord(f.dst, h.Word) })
	}
	if h.Flags&wire.Last != 0 {
		o.answered(f.bad)
	}
}

// refused takes a Nak: of a get or an atomic, which ends, or of a message.
func (o *Out) refused(h *wire.Header) error {
	err := refusal(h.Word)
	if h.Word != wire.CodeAlignment { // that one is the request's fault, not the import's end
		o.onRevoke(h.Handle, NotSaid, err)
	}
	sent := o.sent(h.Seq)
	o.gmu.Lock()
	defer o.gmu.Unlock()
	if len(o.gets) > 0 && o.gets[0].seq == h.Seq && sent {
		o.answered(err)
	}
	return nil
}

// unansweredBefore says whether a get or an atomic before message seq is not
// answered yet: requests are over in order, whichever their kind.
func (o *Out) unansweredBefore(seq uint64) bool {
	if o.reads.Load() == 0 {
		return false
	}
	o.gmu.Lock()
	defer o.gmu.Unlock()
	return len(o.gets) > 0 && o.gets[0].seq < seq
}

// allAnswered waits until all that was asked before message seq is answered.
func (o *Out) allAnswered(ctx context.Context, seq uint64) error {
	for {
		tick := o.room.Now()
		if !o.unansweredBefore(seq) {
			return nil
		}
		if err := o.err(); err != nil {
			return err
		}
		if err := o.e.wait(ctx, &wait.Look{Word: o.room.Word(), Old: tick, Broken: &o.broken, Own: true}, &o.stream); err != nil {
			return err
		}
	}
}

// answered takes the oldest get off the queue; gmu is held. That it was answered
// acknowledges all before it: the exporter works in order.
func (o *Out) answered(err error) {
	f := o.gets[0]
	o.replied = f.seq
	if o.acked.Load() < f.seq { // only the holder of rmu stores there
		o.acked.Store(f.seq)
	}
	n := copy(o.gets, o.gets[1:])
	o.gets[n] = nil
	o.gets = o.gets[:n]
	o.reads.Store(int32(n))
	if invariant.Enabled {
		o.checkGets()
		o.traceFetch("answered", f)
	}
	f.end(err)
	o.room.Move()
	o.tick.Move()
}

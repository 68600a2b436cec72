package link

import (
	"context"
	"sync"

	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxFetches is how many gets may be unanswered on one link; the exporter ends
// a link that has more.
const maxFetches = 64

// fetch is a Get that is not answered yet. Its fields but done are under the
// link's gmu; dst is written by the engine under rmu.
type fetch struct {
	dst  []byte
	seq  uint64
	got  int
	raw  bool  // no last word
	err  error // set before done moves
	done wait.Tick
}

var fetches = sync.Pool{New: func() any { return new(fetch) }}

func (f *fetch) end(err error) {
	f.err = err
	f.done.Move()
}

// Get fetches len(dst) bytes.
func (o *Out) Get(ctx context.Context, handle uint32, off uint64, dst []byte, raw bool) error {
	if err := o.takeTurn(ctx); err != nil {
		return err
	}
	f := fetches.Get().(*fetch)
	f.dst, f.got, f.raw, f.err = dst, 0, raw, nil
	tick := f.done.Now()
	err := o.ask(ctx, f, handle, off)
	o.giveTurn()
	if err != nil {
		return err
	}
	o.e.warm(&o.stream)
	if err := o.e.Wait(ctx, wait.Look{Word: f.done.Word(), Old: tick}); err != nil {
		if o.forsake(f) {
			return err
		}
	}
	err = f.err
	f.dst = nil
	fetches.Put(f)
	return err
}

// ask puts the request on the stream and in the queue of those unanswered.
func (o *Out) ask(ctx context.Context, f *fetch, handle uint32, off uint64) error {
	for {
		tick := o.room.Now()
		o.gmu.Lock()
		n := len(o.gets)
		o.gmu.Unlock()
		if n < maxFetches {
			break
		}
		if err := o.e.Wait(ctx, wait.Look{Word: o.room.Word(), Old: tick, Broken: &o.broken}); err != nil {
			return err
		}
		if err := o.err(); err != nil {
			return err
		}
	}
	if err := o.ready(ctx); err != nil {
		return err
	}
	f.seq = o.seq.Load() + 1
	h := wire.Header{Type: wire.Get, Handle: handle, Seq: f.seq, Off: off, Size: uint64(len(f.dst))}
	if f.raw {
		h.Flags = wire.Bytes
	}
	o.gmu.Lock()
	if o.err() != nil { // lost has emptied the queue, or is about to
		o.gmu.Unlock()
		o.tmu.Unlock()
		return o.err()
	}
	o.gets = append(o.gets, f)
	o.gmu.Unlock()
	o.seq.Store(f.seq)
	o.put(&h, nil) // a header is the engine's own copy: no need to wait for it
	o.tmu.Unlock()
	return nil
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

// replyTo says where a reply's payload goes.
func (o *Out) replyTo(h *wire.Header) ([]byte, error) {
	o.gmu.Lock()
	defer o.gmu.Unlock()
	if len(o.gets) == 0 || o.gets[0].seq != h.Seq {
		return nil, protocol("a reply to %d, which was not asked for", h.Seq)
	}
	f := o.gets[0]
	span := int(h.Span())
	switch {
	case f.raw != (h.Flags&wire.Bytes != 0), h.Off != uint64(f.got):
		return nil, protocol("reply to %d at %d, expected at %d", h.Seq, h.Off, f.got)
	case f.dst == nil: // forsaken; its length is not known any more
		o.reading = f
		return nil, nil
	case uint64(len(f.dst)) != h.Size, f.got+span > len(f.dst), (h.Flags&wire.Last != 0) != (f.got+span == len(f.dst)):
		return nil, protocol("reply of %d bytes to a get of %d", h.Size, len(f.dst))
	}
	o.reading = f
	if h.Chunk == 0 {
		return nil, nil
	}
	return f.dst[f.got : f.got+int(h.Chunk)], nil
}

// fetched is called when a reply's payload is in place.
func (o *Out) fetched(h *wire.Header) {
	o.gmu.Lock()
	defer o.gmu.Unlock()
	f := o.reading
	o.reading = nil
	f.got += int(h.Span())
	if f.dst != nil && h.Flags&wire.Last != 0 && !f.raw {
		setLastWord(f.dst, h.Word)
	}
	if h.Flags&wire.Last != 0 {
		o.answered(nil)
	}
}

// refused takes a Nak: of a get, which ends, or of a message.
func (o *Out) refused(h *wire.Header) error {
	err := refusal(h.Word)
	o.onRevoke(h.Handle, err)
	o.gmu.Lock()
	defer o.gmu.Unlock()
	if len(o.gets) > 0 && o.gets[0].seq == h.Seq {
		o.answered(err)
	}
	return nil
}

// answered takes the oldest get off the queue; gmu is held.
func (o *Out) answered(err error) {
	f := o.gets[0]
	n := copy(o.gets, o.gets[1:])
	o.gets[n] = nil
	o.gets = o.gets[:n]
	f.end(err)
	o.room.Move()
}

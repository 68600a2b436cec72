package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Eager is the longest message, in bytes, whose send returns once the kernel
// has it. The source is free then; longer ones return when they are acknowledged.
const Eager = 64 << 10

// Out is the importing side of a link. All its methods may be called
// concurrently.
type Out struct {
	stream
	pages *Pages // nil between nodes

	turn chan struct{} // one message at a time is put on the stream

	// seq is the last message begun, written with the turn and tmu held; acked
	// the last one applied at the far end, written by the engine. They are
	// equal when nothing is under way, which mapped sends check.
	seq   atomic.Uint64
	acked atomic.Uint64
	tick  wait.Tick // moves with acked

	gmu     sync.Mutex // last in the order of locks
	gets    []*fetch   // asked for and not answered, oldest first
	room    wait.Tick  // moves when a get is answered
	reading *fetch     // whose payload is arriving; with rmu

	nmu      sync.Mutex // orders serials with the ring's entries
	serial   uint32
	taken    atomic.Uint32 // credits taken, in all
	returned atomic.Uint32 // credits come back over the stream, in all

	onRevoke func(handle uint32, err error)
	onLost   func(err error)
}

// NewOut starts the importing side on a connected socket, which it owns from
// then on. pages is nil between nodes. onRevoke and onLost are called from the
// engine; they must not block.
func NewOut(e *Engine, fd int, pages *Pages, onRevoke func(uint32, error), onLost func(error)) (*Out, error) {
	o := &Out{pages: pages, turn: make(chan struct{}, 1), onRevoke: onRevoke, onLost: onLost}
	if err := o.start(e, fd, o); err != nil {
		pages.retire()
		return nil, err
	}
	return o, nil
}

// Close ends the link.
func (o *Out) Close() { o.fail(ErrClosed) }

// Err is why the link has ended, or nil.
func (o *Out) Err() error { return o.err() }

// Detach tells the exporter that an import is no more.
func (o *Out) Detach(handle uint32) {
	if o.err() == nil {
		o.control(wire.Header{Type: wire.Detach, Handle: handle})
	}
}

func (o *Out) takeTurn(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *Out) giveTurn() { <-o.turn }

// Message is a send on the stream.
type Message struct {
	Handle uint32
	Off    uint64
	Src    []byte
	Bytes  bool // any length and alignment
	Notify bool
}

// Send puts a message on the stream. A short one is in the kernel's hands when
// it returns, a long one at its place.
func (o *Out) Send(ctx context.Context, m Message) error {
	if m.Notify {
		if err := o.credit(ctx); err != nil {
			return err
		}
	}
	if err := o.takeTurn(ctx); err != nil {
		o.uncredit(m.Notify)
		return err
	}
	seq, err := o.transfer(ctx, &m)
	o.giveTurn()
	if err != nil || len(m.Src) <= Eager {
		return err
	}
	if err := o.settle(ctx, seq); err != nil {
		return unknown(err)
	}
	return nil
}

// transfer writes m's chunks; the caller has the turn.
func (o *Out) transfer(ctx context.Context, m *Message) (seq uint64, err error) {
	h := wire.Header{Type: wire.Data, Handle: m.Handle, Size: uint64(len(m.Src))}
	for done := 0; done < len(m.Src); {
		chunk := m.Src[done:min(len(m.Src), done+wire.MaxChunk)]
		h.Off, h.Flags = m.Off+uint64(done), 0
		if m.Bytes {
			h.Flags = wire.Bytes
		}
		first, last := done == 0, done+len(chunk) == len(m.Src)
		done += len(chunk)
		if last {
			chunk = finish(&h, m, chunk)
		}
		h.Chunk = uint32(len(chunk))
		if err := o.ready(ctx); err != nil {
			if first {
				o.uncredit(m.Notify)
				return 0, err
			}
			o.abort(&h, m.Notify)
			return 0, unknown(err)
		}
		if first {
			h.Seq = o.seq.Load() + 1
			o.seq.Store(h.Seq) // counts as outstanding before the first byte goes
			if m.Notify {
				h.Serial = o.nextSerial()
			}
		}
		n := o.put(&h, chunk)
		o.tmu.Unlock()
		if err := o.complete(ctx, n); err != nil {
			if !last {
				o.abort(&h, m.Notify)
			}
			return 0, unknown(err)
		}
	}
	return h.Seq, nil
}

// finish makes h a message's last header, and takes the last word off the payload.
func finish(h *wire.Header, m *Message, chunk []byte) []byte {
	h.Flags |= wire.Last
	if m.Notify {
		h.Flags |= wire.Notify
	}
	if len(m.Src) > Eager {
		h.Flags |= wire.AckNow
	}
	if m.Bytes {
		return chunk
	}
	h.Word = lastWord(chunk)
	return chunk[:len(chunk)-4]
}

// abort ends a message whose last chunk has not begun (docs/models: cancel):
// its last word is never stored. It takes the place of the message's number.
func (o *Out) abort(h *wire.Header, notify bool) {
	a := wire.Header{Type: wire.Abort, Handle: h.Handle, Seq: h.Seq, Serial: h.Serial}
	if notify {
		a.Flags = wire.Notify
	}
	o.control(a)
}

// Settle waits until all that this process sent on the stream so far has been
// applied.
func (o *Out) Settle(ctx context.Context) error { return o.settle(ctx, o.seq.Load()) }

func (o *Out) settle(ctx context.Context, seq uint64) error {
	asked := false
	for {
		tick := o.tick.Now()
		if o.acked.Load() >= seq {
			return nil
		}
		if err := o.err(); err != nil {
			return err
		}
		if !asked {
			asked = true
			o.ping()
			o.e.warm(&o.stream)
		}
		if err := o.e.Wait(ctx, wait.Look{Word: o.tick.Word(), Old: tick, Broken: &o.broken}); err != nil {
			return err
		}
	}
}

// ping asks for an acknowledgement; once is enough while it waits for room.
func (o *Out) ping() {
	o.tmu.Lock()
	defer o.tmu.Unlock()
	for _, c := range o.tx.ctl {
		if c.Type == wire.Ping {
			return
		}
	}
	o.tx.ctl = append(o.tx.ctl, wire.Header{Type: wire.Ping})
	o.pump()
}

// credit takes a notification credit, waiting for one if need be. No lock that
// data or acknowledgements need is held.
func (o *Out) credit(ctx context.Context) error {
	back := o.back()
	for {
		r := back.Load()
		t := o.taken.Load()
		if t-r < page.Credits {
			if o.taken.CompareAndSwap(t, t+1) {
				return nil
			}
			continue
		}
		if back.Load() != r { // t is younger than r, which is why they do not fit
			continue
		}
		if t-r > 2*page.Credits { // no honest exporter returns more than was taken
			o.fail(protocol("%d notification credits returned, %d taken", r, t))
		}
		if err := o.err(); err != nil {
			return err
		}
		if err := o.e.Wait(ctx, wait.Look{Word: back, Old: r, Broken: &o.broken}); err != nil {
			return err
		}
	}
}

// back is the total of credits returned: a word in the exporter's page, or what
// came over the stream.
func (o *Out) back() *atomic.Uint32 {
	if o.pages != nil {
		return o.pages.Back.Returned()
	}
	return &o.returned
}

func (o *Out) uncredit(notify bool) {
	if notify {
		o.taken.Add(^uint32(0))
	}
}

func (o *Out) nextSerial() uint32 {
	o.nmu.Lock()
	o.serial++
	n := o.serial
	o.nmu.Unlock()
	return n
}

// frame takes what the exporter says.
func (o *Out) frame(h *wire.Header) ([]byte, error) {
	switch h.Type {
	case wire.Ack, wire.Nak, wire.Bell, wire.Revoke:
		return nil, nil
	case wire.Reply:
		return o.replyTo(h)
	}
	return nil, protocol("the exporter sent a frame of type %d", h.Type)
}

func (o *Out) placed(h *wire.Header) error {
	switch h.Type {
	case wire.Ack:
		if h.Ack > o.seq.Load() || h.Ack < o.acked.Load() {
			return protocol("acknowledged %d, sent %d, acknowledged before %d", h.Ack, o.seq.Load(), o.acked.Load())
		}
		o.acked.Store(h.Ack)
		o.returned.Store(h.Credits)
		o.tick.Move()
	case wire.Nak:
		return o.refused(h)
	case wire.Revoke:
		o.onRevoke(h.Handle, refusal(h.Word))
	case wire.Reply:
		o.fetched(h)
	}
	return nil
}

func (o *Out) settled() {}

func (o *Out) next(*wire.Header) ([]byte, bool) { return nil, false }

func (o *Out) lost(err error) {
	o.gmu.Lock()
	for _, f := range o.gets {
		f.end(err)
	}
	o.gets = nil
	o.gmu.Unlock()
	o.tick.Move()
	o.room.Move()
	o.tx.room.Move()
	o.onLost(fmt.Errorf("link: %w", err))
	o.pages.retire()
}

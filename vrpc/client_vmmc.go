package vrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/xdr"
)

// fewest is how many bytes of opaque data are sent from where they lie instead of being copied.
const fewest = 4096

// vmmcTransport is a client's connection by remote memory. A call takes a slot, which is where its
// reply will be; there are no more calls at a time. Its request is one message to the server's next
// entry, or lies in the server's area until the reply is there. The client allocates the area.
//
// There are as many entries as slots, so the next one is always free: of the calls in all entries
// one at least was answered, as the new call has its slot, and the server takes entries in their
// order.
type vmmcTransport struct {
	q    *vmmc.Import // the server's
	out  layout
	area *area

	in      *inbox
	decoded int // see WithMaxDecodedReply

	places *semaphore.Semaphore // as many as slots: a call that holds one finds a slot in free
	mu     sync.Mutex
	free   slots // guarded by mu

	turn *semaphore.Semaphore // one: to write an entry
	next uint64               // entries written

	closing sync.Once
	ending  sync.Once
	ended   chan struct{} // closed when there is no connection any more, for the reason why
	over    atomic.Bool   // ended is closed, or is about to be
	why     error         // does not change once over is set
}

// slot is what one call at a time has.
type slot struct {
	index uint32
	old   uint32 // what its word was before the call
	where int    // of the request in the server's area
	size  int    // there; 0: none
	codec
	small [entrySize]byte
	parts [][]byte
	words [][]byte
}

// slots are those that are free, in the order in which they came free: a server that was not told
// that a reply is done with learns it when the slot is used again, which must not take for ever.
type slots struct {
	ring        []*slot
	first, next int // the oldest one, and where the next one goes
}

func (f *slots) pop() *slot {
	s := f.ring[f.first]
	f.first = f.after(f.first)
	return s
}

func (f *slots) push(s *slot) {
	f.ring[f.next] = s
	f.next = f.after(f.next)
}

func (f *slots) after(i int) int {
	if i++; i == len(f.ring) {
		return 0
	}
	return i
}

func newVMMCTransport(q *vmmc.Import, out layout, in *inbox, decoded int) *vmmcTransport {
	w := &vmmcTransport{
		q: q, out: out, area: newArea(out.area), in: in, decoded: decoded,
		places: semaphore.New(out.entries), ended: make(chan struct{}), turn: semaphore.New(1),
	}
	for i := range out.entries {
		w.free.ring = append(w.free.ring, &slot{index: uint32(i)})
	}
	return w
}

func (w *vmmcTransport) peer() string { return "vmmc " + w.q.Exporter().String() }

func (*vmmcTransport) flush(context.Context) error { return nil }

func (w *vmmcTransport) close() error {
	w.closing.Do(func() {
		w.end(ErrClosed)
		for range w.out.entries { // no call reads the memory any more
			_ = w.places.Acquire(context.Background())
		}
		for range w.out.entries { // later calls get the error
			w.places.Release()
		}
		w.in.close()
	})
	return nil
}

// end ends the connection, and with it every wait for a part of it: what others hold of the
// server's area they will not give back.
func (w *vmmcTransport) end(why error) {
	w.ending.Do(func() {
		w.why = why
		w.over.Store(true)
		close(w.ended)
	})
	_ = w.q.Close()
}

// lost makes an error of remote memory one of a call.
func (w *vmmcTransport) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, vmmc.ErrOutcomeUnknown) {
		return ctx.Err()
	}
	w.end(fmt.Errorf("%w: %w", ErrLost, err)) // what has arrived is unknown
	return w.why
}

// acquireSlot waits for a slot.
func (w *vmmcTransport) acquireSlot(ctx context.Context) (*slot, error) {
	// else it could wait as long as close does
	if err := w.places.AcquireUntil(ctx, w.ended); err != nil {
		if errors.Is(err, semaphore.ErrStopped) {
			return nil, w.why
		}
		return nil, ctx.Err()
	}
	if w.over.Load() { // the memory may be gone
		w.places.Release()
		return nil, w.why
	}
	w.mu.Lock()
	s := w.free.pop()
	w.mu.Unlock()
	return s, nil
}

func (w *vmmcTransport) releaseSlot(s *slot) {
	w.mu.Lock()
	w.free.push(s)
	w.mu.Unlock()
	w.places.Release()
}

func (w *vmmcTransport) call(
	ctx context.Context, h rpcmsg.Call, args xdr.Marshaler, res xdr.Unmarshaler,
) error {
	s, err := w.acquireSlot(ctx)
	if err != nil {
		return err
	}
	number, err := w.send(ctx, s, &h, args)
	if err != nil {
		w.releaseSlot(s)
		return err
	}
	if err := w.await(ctx, s, number); err != nil {
		handler := errors.Is(err, vmmc.ErrNotInHandler) // says nothing of the connection
		if ctx.Err() == nil && !handler {
			w.releaseSlot(s)
			return w.lost(ctx, err)
		}
		go w.abandon(s, number) //nolint:gosec // the server will use the slot, whatever becomes of ctx
		if handler {
			return err
		}
		return ctx.Err()
	}
	err = w.reply(ctx, s, number, res)
	w.releaseSlot(s)
	return err
}

// post sends a call like any other: the server uses its slot to say when it has run.
func (w *vmmcTransport) post(ctx context.Context, h rpcmsg.Call, args xdr.Marshaler) error {
	s, err := w.acquireSlot(ctx)
	if err != nil {
		return err
	}
	number, err := w.send(ctx, s, &h, args)
	if err != nil {
		w.releaseSlot(s)
		return err
	}
	go w.abandon(s, number) //nolint:gosec // the server will use the slot, whatever becomes of ctx
	return nil
}

// abandon waits for the reply of a cancelled call.
func (w *vmmcTransport) abandon(s *slot, number uint32) {
	if err := w.await(context.Background(), s, number); err == nil {
		_ = w.reply(context.Background(), s, number, nil)
	} else {
		_ = w.lost(context.Background(), err)
	}
	w.releaseSlot(s)
}

// await waits until the reply is in its slot.
func (w *vmmcTransport) await(ctx context.Context, s *slot, number uint32) error {
	v, err := w.q.WaitWord(ctx, w.in.words[s.index], s.old)
	if err != nil {
		return err
	}
	if s.old = v; v != number {
		return errEntry
	}
	return nil
}

// reply decodes the reply, and gives back the memory of request and reply.
func (w *vmmcTransport) reply(
	ctx context.Context, s *slot, number uint32, res xdr.Unmarshaler,
) (err error) {
	if s.size > 0 {
		w.area.free(s.where, s.size)
		s.size = 0
	}
	var e entry
	place := w.in.place(int(s.index))
	e.read(place, number)
	b, ok := w.in.message(&e, place)
	if !ok {
		return w.lost(ctx, errEntry)
	}
	switch {
	case res != nil && len(b) == 0:
		err = ErrNoReply
	case res != nil:
		err = s.decodeReply(b, res, w.decoded)
	}
	if e.where != here {
		// A server that is gone needs no memory, and one that is not told has it when the slot is
		// used again.
		_ = w.q.Send(ctx, binary.LittleEndian.AppendUint32(s.small[:0], number), 4*int(s.index))
	}
	return err
}

// send sends the request, and returns its number.
func (w *vmmcTransport) send(
	ctx context.Context, s *slot, h *rpcmsg.Call, args xdr.Marshaler,
) (uint32, error) {
	s.e.Reset(s.small[:0:inline])
	s.e.Gather(fewest)
	s.call = *h
	s.call.EncodeXDR(&s.e)
	if args.EncodeXDR(&s.e); s.e.Err() != nil {
		return 0, s.e.Err()
	}
	e := entry{length: uint32(s.e.Size()), where: here, slot: s.index}
	if s.e.Size() <= inline {
		return w.write(ctx, s, e)
	}
	s.parts = s.e.Pieces(s.parts[:0])
	size := s.e.Size()
	pad := w.area.pad(s.parts, size)
	s.words = whole(s.words[:0], s.parts)
	defer func() {
		clear(s.parts)
		clear(s.words)
		s.e.Reset(nil)
	}()
	where, err := w.area.alloc(ctx, pad+size, w.ended)
	switch {
	case errors.Is(err, errEnded):
		return 0, w.why
	case err != nil:
		return 0, err
	}
	err = w.q.SendV(ctx, s.words, w.out.data()+where+pad)
	if err != nil {
		w.area.free(where, pad+size)
		if ctx.Err() != nil {
			return 0, ctx.Err() // the server does not know of it
		}
		return 0, w.lost(ctx, err)
	}
	e.where = uint32(where + pad)
	number, err := w.write(ctx, s, e)
	if err != nil {
		w.area.free(where, pad+size)
		return 0, err
	}
	s.where, s.size = where, pad+size
	return number, nil
}

// write writes the next entry after its message, if it lies here: then it is in s.small.
func (w *vmmcTransport) write(ctx context.Context, s *slot, e entry) (uint32, error) {
	if w.turn.Acquire(ctx) != nil {
		return 0, ctx.Err()
	}
	defer w.turn.Release()
	e.number = uint32(w.next + 1)
	b := s.small[:0]
	if e.where == here {
		b = s.small[:e.length]
	}
	b = e.append(b)
	at := w.out.at(int(w.next%uint64(w.out.entries))) + entrySize - len(b)
	if err := w.q.Send(ctx, b, at); err != nil {
		return 0, w.lost(ctx, err)
	}
	w.next++
	return e.number, nil
}

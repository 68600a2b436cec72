package broadcast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Writer appends to a log.
//
// Experimental: it may change in any release.
type Writer struct {
	ring
	p         *vmmc.Process
	name      string
	opts      options
	letterbox pair.Buffer
	log       pair.Buffer
	listener  *pair.Listener

	mu        sync.Mutex // one append at a time
	first     uint64     // Guarded by mu.
	tail      uint64     // Guarded by mu.
	firstWord vmmc.Word64
	tailWord  vmmc.Word64
	bytes     []byte                   // the ring
	closed    bool                     // Guarded by mu.
	push      [pushSize + trailer]byte // the message to readers that wait. Guarded by mu.
	// Guarded by mu. A desk is used under mu, or by the goroutine that desk.later waits for.
	desks    []*desk
	unclosed []*desk // dropped ones that Close is to close again. Guarded by mu.

	closeMu sync.Mutex // Held by Close.
	over    bool       // reports whether Close is done. Guarded by closeMu.

	watching context.Context //nolint:containedctx // of goroutines that drop readers; ends with Close
	unwatch  context.CancelFunc
	sending  context.Context //nolint:containedctx // of goroutines that ring; ends at the end of Close
	unsend   context.CancelFunc
	wg       sync.WaitGroup // goroutines that drop readers
}

// desk is what the writer has of one reader.
type desk struct {
	im  *vmmc.Import // the reader's
	own pair.Buffer

	armed    vmmc.Word // the reader's last request, in own
	ended    vmmc.Word // in own
	answered atomic.Uint32
	busy     atomic.Bool    // reports whether a goroutine rings, or has found that it cannot
	later    sync.WaitGroup // a goroutine that rings

	last [trailer]byte // what later sends
}

// NewWriter makes a log, whose ring has size bytes, rounded up to a power of two of at least 4 KiB
// and at most 1 GiB, and publishes it under a name, see [vmmc.Export.PublishAs]. Errors:
// [vmmc.ErrBadArg] for a size or an option that cannot be; those of [vmmc.Process.Export] and
// PublishAs.
//
// Experimental: it may change in any release.
func NewWriter(
	ctx context.Context, p *vmmc.Process, name string, size int, opts ...Option,
) (*Writer, error) {
	op := fmt.Sprintf("write log %q", name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	w := &Writer{p: p, name: name, opts: defaults}
	for _, o := range opts {
		if o == nil {
			return nil, pair.BadArg(op, errors.New("an option is nil"))
		}
		o(&w.opts)
	}
	switch {
	case size < 1 || size > 1<<maxShift:
		return nil, pair.BadArg(op, fmt.Errorf("a ring of %d bytes: at least 1, and at most %d", size, 1<<maxShift))
	case w.opts.readers < 1:
		return nil, pair.BadArg(op, fmt.Errorf("%d readers: at least 1", w.opts.readers))
	}
	w.size = 1 << max(bits.Len64(uint64(size-1)), minShift)
	w.watching, w.unwatch = context.WithCancel(context.Background())
	w.sending, w.unsend = context.WithCancel(context.Background())
	w.listener = pair.NewListener(p, w.accept)
	if err := w.export(); err != nil {
		return nil, errors.Join(err, w.release())
	}
	if err := w.letterbox.PublishAs(ctx, name); err != nil {
		return nil, errors.Join(err, w.release())
	}
	return w, nil
}

// export exports the log and the letterbox.
func (w *Writer) export() (err error) {
	opts := append(slices.Concat(w.opts.export, w.opts.permit), vmmc.ReadOnly())
	if w.log, err = pair.NewBuffer(w.p, logHeader+int(w.size), nil, opts...); err != nil {
		return err
	}
	w.bytes = w.log.Bytes()[logHeader:]
	if w.firstWord, err = w.log.Word64(firstHighOff); err != nil {
		return err
	}
	if w.tailWord, err = w.log.Word64(tailLowOff); err != nil {
		return err
	}
	w.tail = w.opts.start()
	header := w.log.Bytes()
	binary.NativeEndian.PutUint32(header[startLowOff:], uint32(w.tail))
	binary.NativeEndian.PutUint32(header[startHighOff:], uint32(w.tail>>32))
	w.moveFirst(w.tail)
	w.storeTail(0)
	opts = append(slices.Concat(w.opts.export, w.opts.permit), vmmc.WithHandler(w.listener.Handle))
	w.letterbox, err = pair.NewBuffer(w.p, letterboxSize, func(b []byte) { copy(b[magicOff:], magic) }, opts...)
	return err
}

// moveFirst stores first. What the ring has before it may be overwritten then: no CPU may store
// there before first is visible. Swap is a full barrier where that is one instruction; where it is
// not, a load of what a release store has stored orders later stores behind that.
func (w *Writer) moveFirst(pos uint64) {
	w.first = pos
	w.firstWord.Swap(pairOf(uint32(pos>>32), uint32(pos)))
	w.firstWord.Load()
}

// storeTail stores tail and flags. What was written before is visible then. It is ordered before
// the loads of desks' requests: a reader that has made its request before loads tail after that, or
// finds itself answered.
func (w *Writer) storeTail(flags uint32) {
	w.tailWord.Swap(pairOf(uint32(w.tail)|flags, uint32(w.tail>>32)))
}

// accept makes the desk of a reader.
func (w *Writer) accept(theirs *vmmc.Import) (id uint32, err error) {
	if n := theirs.Size(); n != readerSize {
		return 0, fmt.Errorf("the reader's buffer has %d bytes", n)
	}
	if err := w.addDesk(nil); err != nil {
		return 0, err
	}
	header := func(b []byte) {
		binary.NativeEndian.PutUint32(b[logIDOff:], w.log.ID())
		binary.NativeEndian.PutUint32(b[logSizeOff:], uint32(bits.TrailingZeros64(w.size)))
	}
	d := &desk{im: theirs}
	opts := append(slices.Clip(w.opts.export), pair.For(theirs.Exporter()))
	if d.own, err = pair.NewBuffer(w.p, deskSize, header, opts...); err != nil {
		return 0, err
	}
	if d.armed, err = d.own.Word(armedOff); err == nil {
		d.ended, err = d.own.Word(endedOff)
	}
	if err == nil {
		err = w.addDesk(d)
	}
	if err != nil {
		return 0, errors.Join(err, d.own.Close())
	}
	w.wg.Go(func() { w.watch(d) })
	return d.own.ID(), nil
}

// addDesk adds a desk, or with nil only reports why none can be added.
func (w *Writer) addDesk(d *desk) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return pair.ClosedError("accept a reader", "the log")
	case len(w.desks) >= w.opts.readers:
		return fmt.Errorf("there are %d readers", len(w.desks))
	case d != nil:
		w.desks = append(w.desks, d)
	}
	return nil
}

// watch drops a reader when it has ended.
func (w *Writer) watch(d *desk) {
	select {
	case <-d.im.Done():
	case <-w.watching.Done():
		return
	}
	w.mu.Lock()
	w.desks = slices.DeleteFunc(w.desks, func(o *desk) bool { return o == d })
	w.mu.Unlock()
	pair.At("reader.dropped")
	if d.close() != nil {
		w.mu.Lock()
		w.unclosed = append(w.unclosed, d)
		w.mu.Unlock()
	}
}

// close gives back what the writer has of a reader, which is in no list any more.
func (d *desk) close() error {
	err := d.im.Close() // it ends what later does
	d.later.Wait()
	return errors.Join(err, d.own.Close())
}

// MaxEntry is how many bytes an entry has at most: an eighth of the ring's, without the 8 bytes
// that the log adds.
//
// Experimental: it may change in any release.
func (w *Writer) MaxEntry() int { return w.maxEntry() }

// Readers is how many readers there are. It may be called in a notification handler.
//
// Experimental: it may change in any release.
func (w *Writer) Readers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.desks)
}

// Append appends an entry and returns its position. It waits for no reader and for no link: if the
// ring is full it overwrites the oldest entries. When it returns, all readers can read the entry. It
// may be called in a notification handler. Errors: [vmmc.ErrBadArg] if b is longer than
// [Writer.MaxEntry]; [vmmc.ErrClosed]. After an error nothing was appended.
//
// Experimental: it may change in any release.
func (w *Writer) Append(b []byte) (pos uint64, err error) {
	if len(b) > w.maxEntry() {
		return 0, pair.BadArg(w.op("append to"), fmt.Errorf("an entry of %d bytes: at most %d", len(b), w.maxEntry()))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, pair.ClosedError(w.op("append to"), "the log")
	}
	n := entrySize(len(b))
	w.makeRoom(n)
	pair.At("append.room")
	pos = w.tail
	var header [entryHeader]byte
	putHeader(header[:], pos, len(b))
	w.write(pos, header[:])
	pair.At("append.begun")
	w.write(pos+entryHeader, b)
	pair.At("append.written")
	w.tail += uint64(n)
	w.storeTail(0)
	pair.At("append.stored")
	w.ringAll(pos, n)
	pair.At("append.rung")
	return pos, nil
}

func (w *Writer) op(what string) string { return fmt.Sprintf("%s log %q", what, w.name) }

// makeRoom moves first behind what n more bytes overwrite, to the beginning of an entry.
func (w *Writer) makeRoom(n int) {
	end := w.tail + uint64(n)
	if end-w.first <= w.size {
		return
	}
	pos := w.first
	for target := max(end-w.size, w.first+w.step()); pos < target && pos < w.tail; {
		off, _ := w.parts(pos+lengthOff, wordSize)
		pos += uint64(entrySize(int(binary.NativeEndian.Uint32(w.bytes[off:]))))
	}
	w.moveFirst(pos)
}

// write copies bytes into the ring. Readers may copy them meanwhile, and drop the copy.
func (w *Writer) write(pos uint64, b []byte) {
	off, n := w.parts(pos, len(b))
	shm.CopyUnchecked(w.bytes[off:], b[:n])
	shm.CopyUnchecked(w.bytes, b[n:])
}

// ringAll rings the readers that wait, and pushes to them the entry of n bytes at pos if it is
// short. mu is held.
func (w *Writer) ringAll(pos uint64, n int) {
	var message []byte
	for _, d := range w.desks {
		if d.armed.Load() == d.answered.Load() || !d.busy.CompareAndSwap(false, true) {
			continue // a goroutine that is busy loads the request again after it has stored false
		}
		request := d.armed.Load()
		if request == d.answered.Load() { // a goroutine was busy meanwhile
			d.busy.Store(false)
			continue
		}
		if message == nil {
			message = w.message(pos, n)
		}
		binary.NativeEndian.PutUint32(message[len(message)-trailer+bellAt:], request)
		w.ringOne(d, request, message)
	}
}

// message returns what a reader is rung with, but for its request.
func (w *Writer) message(pos uint64, n int) []byte {
	if n > pushSize {
		n = 0
	}
	off, n1 := w.parts(pos, n)
	copy(w.push[:], w.bytes[off:off+n1])
	copy(w.push[n1:], w.bytes[:n-n1])
	putTrailer(w.push[n:], pos, n)
	return w.push[:n+trailer]
}

// ringOne never waits: if the link is disconnected, or busy with other messages, a goroutine rings
// later.
func (w *Writer) ringOne(d *desk, request uint32, message []byte) {
	d.answered.Store(request)
	if d.im.Send(pair.NoWait, message, readerSize-len(message)) == nil {
		d.busy.Store(false)
		pair.At("append.pushed")
		return
	}
	d.later.Go(func() { w.ringLater(d) })
}

// putTrailer encodes what stands behind an entry that is pushed, but for the reader's request.
func putTrailer(b []byte, pos uint64, n int) {
	binary.NativeEndian.PutUint32(b[0:], uint32(pos))
	binary.NativeEndian.PutUint32(b[4:], uint32(pos>>32))
	binary.NativeEndian.PutUint32(b[8:], uint32(n))
}

// ringLater rings by the newest request. It rings once for each, too. A send fails only when the
// reader or the log has ended.
func (w *Writer) ringLater(d *desk) {
	request := d.answered.Load()
	for {
		binary.NativeEndian.PutUint32(d.last[bellAt:], request) // and no entry before it
		if d.im.Send(w.sending, d.last[:], trailerOff) != nil {
			return
		}
		pair.At("append.later")
		d.busy.Store(false)
		if d.armed.Load() == d.answered.Load() || !d.busy.CompareAndSwap(false, true) {
			return
		}
		request = d.armed.Load()
		if request == d.answered.Load() { // an append was busy meanwhile
			d.busy.Store(false)
			return
		}
		d.answered.Store(request)
	}
}

// Close ends the log. It waits until each reader has read all entries and been told so by
// [ErrEnded], or has ended; if the context ends before, readers that have not lose the rest: their
// calls fail with [vmmc.ErrRevoked]. There are no new readers meanwhile, and no more appends. It
// gives back the writer's memory in any case. Errors: [vmmc.ErrTimeout] or [vmmc.ErrCanceled] if
// readers have not read all; those of [vmmc.Export.Close], [vmmc.ErrNotInHandler]. It is
// [vmmc.ErrBlockedNotifications], and nothing has happened, if a reader is about to join while the
// program blocks its notifications. After an error call Close again; otherwise a second call does
// nothing.
//
// Experimental: it may change in any release.
func (w *Writer) Close(ctx context.Context) error {
	op := w.op("close")
	if err := pair.CheckCall(ctx, op); err != nil {
		return err
	}
	w.closeMu.Lock()
	defer w.closeMu.Unlock()
	if w.over {
		return nil
	}
	if err := w.letterbox.Export.Close(); errors.Is(err, vmmc.ErrBlockedNotifications) {
		return fmt.Errorf("%s: %w", op, err)
	}
	w.listener.Close()
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		w.storeTail(closedBit)
		pair.At("close.stored")
		w.ringAll(w.tail, 0)
	}
	w.mu.Unlock()
	w.unwatch()
	w.wg.Wait() // the list of desks stays as it is from now on
	behind := 0
	for _, d := range w.desks {
		pair.At("close.waits")
		if _, err := d.im.WaitWord(ctx, d.ended, 0); err != nil && d.im.Err() == nil {
			behind++
		}
	}
	if err := w.release(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	w.over = true
	if behind > 0 {
		err := pair.ContextError(ctx, op)
		err.Err = fmt.Errorf("%d readers have not read all: %w", behind, err.Err)
		return err
	}
	return nil
}

// release gives back all that the writer has.
func (w *Writer) release() error {
	w.unwatch()
	w.unsend()
	w.listener.Close()
	w.wg.Wait()
	var errs []error
	w.mu.Lock()
	w.closed = true
	desks := slices.Concat(w.desks, w.unclosed)
	w.desks, w.unclosed = nil, nil
	w.mu.Unlock()
	var unclosed []*desk
	for _, d := range desks {
		if err := d.close(); err != nil {
			errs, unclosed = append(errs, err), append(unclosed, d)
		}
	}
	w.mu.Lock()
	w.unclosed = unclosed
	w.mu.Unlock()
	return errors.Join(append(errs, w.letterbox.Close(), w.log.Close())...)
}

package broadcast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// How many bytes of the log a reader copies at a time. Another node's are two round trips away.
const (
	nearChunk = 64 << 10
	farChunk  = 256 << 10
)

// Reader reads a log at its own pace.
//
// Experimental: it may change in any release.
type Reader struct {
	ring
	p    *vmmc.Process
	name string
	desk *vmmc.Import // the writer's, for this reader
	log  *vmmc.Import
	own  pair.Buffer
	bell vmmc.Word // in own

	sem    *semaphore.Semaphore // The reader's lock. It guards what follows.
	pos    uint64               // of the next entry
	sure   bool                 // reports whether an entry begins at pos; otherwise the caller says so
	tail   uint64               // a tail that was seen; nothing if it is not beyond pos
	chunk  []byte               // chunk[lo:hi] is a copy of the log from pos on
	lo, hi int
	word   [8]byte // what is got or sent, which must not lie on a stack
	armed  uint32  // the number of the last request to be rung
	unsent bool    // reports whether that request may not have been sent
	ended  bool    // reports whether all of a closed log was read
	told   bool    // reports whether the writer knows that

	mu     sync.Mutex
	closed bool // Guarded by mu.
}

// NewReader makes a reader of the log that is published under a name, see
// [vmmc.Process.ImportName]: it waits for the name as long as the context allows. Errors:
// [vmmc.ErrBadArg] if the name is not a log's, or if no position of the log is where the reader is
// to begin; [vmmc.ErrNoMem] if the writer has no memory for another reader, or has as many as it
// may; those of ImportName and [vmmc.Process.Export]. It may return up to a second after its
// context has ended.
//
// Experimental: it may change in any release.
func NewReader(ctx context.Context, p *vmmc.Process, name string, from Start) (*Reader, error) {
	op := fmt.Sprintf("read log %q", name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	im, err := p.ImportName(ctx, name)
	if err != nil {
		return nil, err
	}
	pair.At("dial.found")
	r, err := dial(ctx, p, im, from)
	if err = errors.Join(err, im.Close()); err != nil {
		if r != nil {
			err = errors.Join(err, r.release())
		}
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	r.name = name
	return r, nil
}

// dial makes a reader by a letterbox.
func dial(ctx context.Context, p *vmmc.Process, im *vmmc.Import, from Start) (*Reader, error) {
	if err := checkLetterbox(ctx, im); err != nil {
		return nil, err
	}
	r := &Reader{p: p, sem: semaphore.New(1)}
	err := r.join(ctx, im)
	if err == nil {
		err = r.begin(ctx, from)
	}
	if err != nil {
		return nil, errors.Join(err, r.release())
	}
	pair.At("dial.joined")
	return r, nil
}

// checkLetterbox reports an error if an export is no letterbox.
func checkLetterbox(ctx context.Context, im *vmmc.Import) error {
	var b [letterboxSize]byte
	if im.Size() != len(b) {
		return pair.BadArg("read its header", errors.New("it is no log of this version"))
	}
	if err := im.Get(ctx, b[:], 0); err != nil {
		return err
	}
	if string(b[magicOff:magicOff+len(magic)]) != magic {
		return pair.BadArg("read its header", errors.New("it is no log of this version"))
	}
	return nil
}

// join exports and imports what the writer and the reader have of each other.
func (r *Reader) join(ctx context.Context, im *vmmc.Import) (err error) {
	peer := im.Exporter()
	if r.own, err = pair.NewBuffer(r.p, readerSize, nil, pair.For(peer)); err != nil {
		return err
	}
	if r.bell, err = r.own.Word(trailerOff + bellAt); err != nil {
		return err
	}
	if r.desk, err = pair.Dial(ctx, r.p, im, bellOff, r.own.Export); err != nil {
		return err
	}
	if r.desk.Size() != deskSize {
		return r.protocol(fmt.Errorf("the writer's buffer has %d bytes", r.desk.Size()))
	}
	if err := r.desk.Get(ctx, r.word[:], logIDOff); err != nil {
		return err
	}
	id, shift := binary.NativeEndian.Uint32(r.word[logIDOff:]), binary.NativeEndian.Uint32(r.word[logSizeOff:])
	if shift < minShift || shift > maxShift {
		return r.protocol(fmt.Errorf("a ring of 2^%d bytes", shift))
	}
	r.size = 1 << shift
	// Without a bound it would wait for a log that is closed meanwhile.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer onDone(ctx, r.desk.Done(), stop)()
	if r.log, err = r.p.Import(ctx, peer.Node, peer.PID, id); err != nil {
		if why := r.desk.Err(); why != nil {
			return why
		}
		return err
	}
	if n := r.log.Size(); uint64(n) != logHeader+r.size {
		return r.protocol(fmt.Errorf("the log has %d bytes for a ring of %d", n, r.size))
	}
	n := nearChunk
	if r.log.Path() != vmmc.PathMapped {
		n = farChunk
	}
	r.chunk = make([]byte, min(n, int(r.size)))
	return nil
}

// onDone calls f when done is closed, until the context ends. What it returns waits until it is
// over, which is after the context's end.
func onDone(ctx context.Context, done <-chan struct{}, f func()) (wait func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-done:
			f()
		case <-ctx.Done():
		}
	}()
	return func() { f(); <-over }
}

// begin sets where the reader begins.
func (r *Reader) begin(ctx context.Context, from Start) (err error) {
	switch from {
	case Oldest:
		r.sure = true
		r.pos, err = r.exact(ctx, firstLowOff, firstHighOff)
		return err
	case Newest:
		r.sure = true
		r.pos, err = r.exact(ctx, tailLowOff, tailHighOff)
		r.pos &^= closedBit
		return err
	}
	r.pos = uint64(from) - 1
	if err := r.log.Get(ctx, r.word[:], startLowOff); err != nil {
		return err
	}
	start := position(r.word[:], 0, startHighOff-startLowOff)
	tail, err := r.exact(ctx, tailLowOff, tailHighOff)
	if err == nil && (r.pos < start || r.pos > tail || r.pos%wordSize != 0) {
		err = pair.BadArg("find its beginning", fmt.Errorf(
			"no entry begins at position %d, the log is from %d to %d; a position is one of its log alone",
			r.pos, start, tail&^closedBit))
	}
	return err
}

func (r *Reader) protocol(err error) error {
	return &vmmc.Error{Op: "read", Peer: r.desk.Exporter().String(), Code: vmmc.ErrProtocol, Err: err}
}

// maxTries bounds how often exact gets a position. A false writer could have it go on for ever.
const maxTries = 1000

// exact gets a position whose halves are at two offsets.
func (r *Reader) exact(ctx context.Context, low, high int) (uint64, error) {
	for range maxTries {
		var w [3]uint32
		for i, off := range [...]int{high, low, high} { // gets are in order
			if err := r.log.Get(ctx, r.word[:wordSize], off); err != nil {
				return 0, err
			}
			w[i] = binary.NativeEndian.Uint32(r.word[:])
			pair.At("position.got")
		}
		if w[0] == w[2] { // positions only rise
			return uint64(w[0])<<32 | uint64(w[1]), nil
		}
	}
	return 0, r.protocol(errors.New("a position of the log changes too often"))
}

func (r *Reader) op() string { return fmt.Sprintf("read log %q", r.name) }

// acquire takes the reader's lock.
func (r *Reader) acquire(ctx context.Context) error {
	if ctx == nil || vmmc.InHandler() {
		return pair.CheckCall(ctx, r.op())
	}
	if r.sem.Acquire(ctx) != nil {
		return pair.ContextError(ctx, r.op())
	}
	if r.isClosed() {
		r.sem.Release()
		return pair.ClosedError(r.op(), "the reader")
	}
	return nil
}

func (r *Reader) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Next returns the next entry and its position, and waits while there is none. The entry lies in
// buf if its capacity is at least the entry's length rounded up to 4, and in new memory otherwise.
//
// An [Overrun] (found by errors.As) says that entries were overwritten before they were read; the
// following Next goes on. [ErrEnded] says that there will be no more. Other errors:
// [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context ends; [vmmc.ErrPeerGone] when the writer
// is gone, and [vmmc.ErrRevoked] when its Close did not wait for this reader; [vmmc.ErrBadArg] if no
// entry begins at the position that was given to [At]; [vmmc.ErrProtocol] if the log is none of this
// package's; [vmmc.ErrClosed], [vmmc.ErrNotInHandler]. After an error no entry was read.
//
// Experimental: it may change in any release.
func (r *Reader) Next(ctx context.Context, buf []byte) (b []byte, pos uint64, err error) {
	if err := r.acquire(ctx); err != nil {
		return nil, 0, err
	}
	defer r.sem.Release()
	if b, pos, err = r.next(ctx, buf); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", r.op(), err)
	}
	return b, pos, nil
}

// Entry is one of a log.
//
// Experimental: it may change in any release.
type Entry struct {
	Pos  uint64
	Data []byte
}

// All reads all entries, until the log has ended or the loop is left. The data of an entry is valid
// until the next one is read. A pair with an error of [Reader.Next] has no entry. After an
// [Overrun] it goes on; any other error is its last pair. If the log has ended there is none.
//
// Experimental: it may change in any release.
func (r *Reader) All(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var buf []byte
		for {
			b, pos, err := r.Next(ctx, buf)
			if errors.Is(err, ErrEnded) {
				return
			}
			if err == nil {
				buf = b
			}
			if !yield(Entry{pos, b}, err) || err != nil && !errors.As(err, new(*Overrun)) {
				return
			}
		}
	}
}

// next is Next under the lock.
func (r *Reader) next(ctx context.Context, buf []byte) ([]byte, uint64, error) {
	for {
		have := r.hi - r.lo
		if have < entryHeader {
			if err := r.fill(ctx, entryHeader); err != nil {
				return nil, 0, err
			}
			continue
		}
		n, err := r.parseHeader(r.chunk[r.lo:r.hi], r.pos)
		if err == nil && uint64(entrySize(n)) > r.tail-r.pos {
			err = fmt.Errorf("the entry at position %d ends behind the log's end", r.pos)
		}
		switch {
		case err != nil && !r.sure:
			return nil, 0, pair.BadArg("read", err)
		case err != nil:
			return nil, 0, r.protocol(err)
		case entrySize(n) <= have:
			buf = append(buf[:0], r.chunk[r.lo+entryHeader:][:n]...)
			r.lo += entrySize(n)
		case entrySize(n) <= len(r.chunk):
			if err := r.fill(ctx, entrySize(n)); err != nil {
				return nil, 0, err
			}
			continue
		default:
			if buf, err = r.large(ctx, buf, n); err != nil {
				return nil, 0, err
			}
			r.lo, r.hi = 0, 0
		}
		pos := r.pos
		r.pos += uint64(entrySize(n))
		r.sure = true
		return buf, pos, nil
	}
}

// large copies an entry that is longer than the chunk.
func (r *Reader) large(ctx context.Context, buf []byte, n int) ([]byte, error) {
	if cap(buf) < words(n) {
		buf = make([]byte, words(n))
	}
	buf = buf[:words(n)]
	if err := r.copyLog(ctx, buf, r.pos+entryHeader); err != nil {
		return nil, err
	}
	pair.At("next.copied")
	return buf[:n], r.validate(ctx)
}

// fill copies what the log has from pos on, at least n bytes, which the chunk has room for. It waits
// while there is nothing.
func (r *Reader) fill(ctx context.Context, n int) error {
	r.lo, r.hi = 0, 0
	if r.tail <= r.pos {
		if err := r.await(ctx); err != nil || r.hi > 0 {
			return err
		}
	}
	if r.tail-r.pos < uint64(n) || r.tail%wordSize != 0 || r.pos%wordSize != 0 {
		// Before anything is said of the writer: the tail may have been got during a carry.
		if err := r.validate(ctx); err != nil {
			return err
		}
		if !r.sure {
			return pair.BadArg("read", fmt.Errorf("no entry begins at position %d, and the log's end is %d", r.pos, r.tail))
		}
		return r.protocol(fmt.Errorf("the log ends at %d, and no entry from %d on does", r.tail, r.pos))
	}
	have := int(min(r.tail-r.pos, uint64(len(r.chunk))))
	if err := r.copyLog(ctx, r.chunk[:have], r.pos); err != nil {
		return err
	}
	pair.At("next.copied")
	from := r.pos
	err := r.validate(ctx)
	if err != nil && r.pos == from {
		return err
	}
	pair.At("next.valid")
	// After an overrun, what was copied of the entries that the log still had is valid. A reader that
	// dropped it could be overrun by each copy that it makes.
	if skip := r.pos - from; skip < uint64(have) {
		r.lo, r.hi = int(skip), have
	}
	return err
}

// copyLog copies a part of the log, which may be overwritten meanwhile.
func (r *Reader) copyLog(ctx context.Context, dst []byte, pos uint64) error {
	off, n := r.parts(pos, len(dst))
	if err := r.log.Get(ctx, dst[:n], logHeader+off); err != nil || n == len(dst) {
		return err
	}
	return r.log.Get(ctx, dst[n:], logHeader)
}

// validate reports whether what was copied from pos on had not been overwritten. If it had, the
// reader goes on with the oldest entry. The get is made when those of the copy have returned, so it
// reads after them.
func (r *Reader) validate(ctx context.Context) error {
	if err := r.log.Get(ctx, r.word[:], firstHighOff); err != nil {
		return err
	}
	first := position(r.word[:], firstLowOff, firstHighOff)
	if first > r.pos { // or a carry makes it seem so
		var err error
		if first, err = r.exact(ctx, firstLowOff, firstHighOff); err != nil {
			return err
		}
	}
	switch {
	case first%wordSize != 0:
		return r.protocol(fmt.Errorf("the log begins at %d", first))
	case first > r.pos:
		lost := first - r.pos
		r.pos, r.sure, r.lo, r.hi = first, true, 0, 0
		return &Overrun{Lost: lost}
	case r.tail-first > r.size: // first was got after tail
		return r.protocol(fmt.Errorf("the log from %d to %d is longer than the ring", first, r.tail))
	}
	return nil
}

// await waits until the log has something at pos. It sets tail, or also the chunk.
//
// A reader that finds nothing requests to be rung, looks again, and sleeps. The writer rings once
// for each request, after it has stored a tail. So a request that is not answered stays in force;
// one that is answered is followed by a look and by another request.
func (r *Reader) await(ctx context.Context) error {
	for {
		if r.ended {
			return r.end(ctx)
		}
		seen := r.bell.Load()
		if seen == r.armed && !r.unsent && r.takePush() {
			return nil
		}
		if there, err := r.look(ctx); there || err != nil {
			return err
		}
		if r.ended {
			continue
		}
		if seen == r.armed || r.unsent {
			r.armed++
			r.unsent = true
			binary.NativeEndian.PutUint32(r.word[:], r.armed)
			if err := r.desk.Send(ctx, r.word[:wordSize], armedOff); err != nil {
				return err
			}
			r.unsent = false
			pair.At("next.armed")
			continue
		}
		pair.At("next.sleeps")
		if _, err := r.desk.WaitWord(ctx, r.bell, seen); err != nil {
			return err
		}
		pair.At("next.rung")
	}
}

// look gets tail, and reports whether it is beyond pos. If there will be no more it sets ended.
func (r *Reader) look(ctx context.Context) (bool, error) {
	tail, err := r.getTail(ctx)
	if err != nil || tail&^closedBit > r.pos {
		return err == nil, err
	}
	if tail&closedBit == 0 {
		return false, nil
	}
	// It does not change any more, but may have been got during the last carry.
	if tail, err = r.getTail(ctx); err != nil || tail&^closedBit > r.pos {
		return err == nil, err
	}
	r.ended = true
	return false, nil
}

// end tells the writer that all was read. If that fails, the next call repeats it.
func (r *Reader) end(ctx context.Context) error {
	if !r.told {
		binary.NativeEndian.PutUint32(r.word[:], 1)
		r.told = r.desk.Send(ctx, r.word[:wordSize], endedOff) == nil
		pair.At("next.ended")
	}
	return ErrEnded
}

// getTail gets tail with its flags, and keeps it if it is beyond pos.
func (r *Reader) getTail(ctx context.Context) (uint64, error) {
	if err := r.log.Get(ctx, r.word[:], tailLowOff); err != nil {
		return 0, err
	}
	tail := position(r.word[:], 0, tailHighOff-tailLowOff)
	if tail&^closedBit > r.pos {
		r.tail = tail &^ closedBit
	}
	pair.At("tail.got")
	return tail, nil
}

// takePush takes the entry that the writer has pushed if it is the next one. The writer has
// answered the last request, so it writes nothing here until the next one.
func (r *Reader) takePush() bool {
	b := r.own.Bytes()
	last := b[trailerOff:]
	n := int(binary.NativeEndian.Uint32(last[8:]))
	if n < entryHeader || n > pushSize || n > len(r.chunk) || n%wordSize != 0 || position(last, 0, 4) != r.pos {
		return false
	}
	r.hi = copy(r.chunk, b[trailerOff-n:trailerOff])
	r.tail = r.pos + uint64(n)
	return true
}

// Close ends the reader, and what waits. Errors: those of [vmmc.Export.Close],
// [vmmc.ErrNotInHandler]. A second call does nothing, or goes on after an error.
//
// Experimental: it may change in any release.
func (r *Reader) Close() error {
	op := fmt.Sprintf("close the reader of log %q", r.name)
	if err := pair.CheckCall(context.Background(), op); err != nil {
		return err
	}
	if err := r.release(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// release gives back what the reader has.
func (r *Reader) release() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	var errs []error
	for _, im := range []*vmmc.Import{r.log, r.desk} {
		if im != nil {
			errs = append(errs, im.Close()) // it ends a read that waits
		}
	}
	_ = r.sem.Acquire(context.Background())
	defer r.sem.Release()
	return errors.Join(append(errs, r.own.Close())...)
}

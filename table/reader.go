package table

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/view"
)

// Reader reads a table, of this process or another one.
//
// Experimental: it may change in any release.
type Reader[K comparable, V any] struct {
	*typed[K, V]
	p    *vmmc.Process
	name string

	closed atomic.Bool
	over   context.Context //nolint:containedctx // ends with Close, and so does a Rejoin that waits
	end    context.CancelFunc

	mu     sync.Mutex // Held by Rejoin and Close.
	source atomic.Pointer[source]
}

// memory is what a look-up gets the table's memory from.
type memory interface {
	Get(ctx context.Context, dst []byte, off int) error
}

// source is a table as a reader has it.
type source struct {
	geometry
	secret
	seed [2]uint64
	mem  memory
	im   *vmmc.Import
	// whole reports whether a look-up gets buckets as a whole. Otherwise it gets the heads, and then
	// one slot.
	whole bool
}

// room is how many bytes a look-up needs.
func (s *source) room() int {
	if s.whole {
		return s.bucket
	}
	return s.slot + s.tail
}

// How many bytes a bucket may have that is got as a whole. On one node a second get costs little.
const (
	maxWhole       = 8 << 10
	maxWholeMapped = 1 << 10
)

// Open makes a reader of the table that is published under a name, see [vmmc.Process.ImportName]:
// it waits for the name as long as the context allows. Errors: a [*view.TypeError];
// [view.ErrLayout], with a [*view.LayoutError], if the table's keys or values are of another
// layout; [vmmc.ErrBadArg] if the name is not a table's; those of ImportName and
// [vmmc.Import.Get].
//
// Experimental: it may change in any release.
func Open[K comparable, V any](
	ctx context.Context, p *vmmc.Process, name string,
) (*Reader[K, V], error) {
	if err := checkCall(ctx, openOp(name)); err != nil {
		return nil, err
	}
	types, err := typesOf[K, V]()
	if err != nil {
		return nil, err
	}
	r := &Reader[K, V]{typed: types, p: p, name: name}
	s, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	r.over, r.end = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	r.source.Store(s)
	return r, nil
}

func openOp(name string) string { return "open table " + strconv.Quote(name) }

// open imports the table.
func (r *Reader[K, V]) open(ctx context.Context) (*source, error) {
	im, err := r.p.ImportName(ctx, r.name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", openOp(r.name), err)
	}
	s := &source{geometry: newGeometry(r.keyLayout.Size, r.valueLayout.Size), mem: im, im: im}
	if err := r.usePrefix(ctx, s); err != nil {
		if errors.Is(err, view.ErrLayout) || errors.Is(err, errNoTable) {
			err = &vmmc.Error{
				Op: openOp(r.name), Peer: im.Exporter().String(), Code: vmmc.ErrBadArg, Err: err,
			}
		}
		return nil, errors.Join(err, im.Close())
	}
	s.whole = s.bucket <= maxWhole && im.Path() == vmmc.PathStream || s.bucket <= maxWholeMapped
	return s, nil
}

// usePrefix reads the table's prefix.
func (r *Reader[K, V]) usePrefix(ctx context.Context, s *source) error {
	size := s.im.Size()
	if size < textsOff {
		return errNoTable
	}
	b := make([]byte, textsOff)
	if err := s.mem.Get(ctx, b, 0); err != nil {
		return err
	}
	keyText, valueText, err := textLengths(b, size)
	if err != nil {
		return err
	}
	b = make([]byte, prefixSize(keyText, valueText))
	if err := s.mem.Get(ctx, b, 0); err != nil {
		return err
	}
	texts := string(b[textsOff : textsOff+keyText+valueText])
	if err := view.Check[K](texts[:keyText]); err != nil {
		return fmt.Errorf("its keys: %w", err)
	}
	if err := view.Check[V](texts[keyText:]); err != nil {
		return fmt.Errorf("its values: %w", err)
	}
	s.seed, err = s.usePrefix(b, size)
	s.secret = newSecret(s.seed)
	return err
}

// Get returns the value of a key: one that it had at some time during the call, whole. ok is false
// if the key was not there at some time during the call. No code of the owner's program runs. While
// the owner changes entries, Get may try again, as long as the context allows; an owner that is
// stopped, wherever it is, makes no call wait.
//
// Errors: as [vmmc.Import.Get], [vmmc.ErrPeerGone] among them if the owner has died and
// [vmmc.ErrRevoked] if it has closed the table; [vmmc.ErrTimeout] and [vmmc.ErrCanceled];
// [vmmc.ErrProtocol] if the owner's memory is not that of a table.
//
// Experimental: it may change in any release.
func (r *Reader[K, V]) Get(ctx context.Context, k K) (v V, ok bool, err error) {
	if ctx == nil {
		return v, false, checkCall(ctx, r.op())
	}
	s := r.source.Load()
	c := r.begin(k, s.room())
	defer r.pool.Put(c)
	key := r.keys.Of(&c.k)
	value, err := s.lookUp(ctx, sipHash(s.seed, key), key, c.buf[:s.room()])
	switch {
	case err != nil:
		return v, false, r.failed(ctx, s, err)
	case value == nil:
		return v, false, nil
	}
	copy(r.values.Of(&c.v), value)
	return c.v, true, nil
}

func (r *Reader[K, V]) op() string { return "get from table " + strconv.Quote(r.name) }

// failed adds to an error of a look-up what was tried.
func (r *Reader[K, V]) failed(ctx context.Context, s *source, err error) error {
	code := vmmc.ErrTimeout
	switch {
	case r.closed.Load():
		return closedError(r.op())
	case errors.Is(err, errBroken):
		code = vmmc.ErrProtocol
	case err != errBusy: //nolint:errorlint // it is made here
		return fmt.Errorf("%s: %w", r.op(), err)
	case errors.Is(ctx.Err(), context.Canceled):
		code = vmmc.ErrCanceled
	}
	if code != vmmc.ErrProtocol {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return &vmmc.Error{Op: r.op(), Peer: s.im.Exporter().String(), Code: code, Err: err}
}

func closedError(op string) error {
	return &vmmc.Error{Op: op, Code: vmmc.ErrClosed, Err: errors.New("the reader is closed")}
}

var (
	errBusy   = errors.New("the owner has changed the entries all the time")
	errBroken = errors.New("the owner's memory is not that of a table: its program is in error")
)

// attempt is how an attempt at a look-up ended.
type attempt int

const (
	found attempt = iota
	absent
	// changed: the owner has changed the table meanwhile, since the last attempt that ended at the
	// same bucket and version, too.
	changed
)

// maxSame is how many attempts in succession may end at the same version of the same bucket. One
// would be enough, if gets were in order with those before on all processors.
const maxSame = 64

// lookUp returns the bytes of a key's value, which lie in buf; nil if the key is not there.
func (s *source) lookUp(
	ctx context.Context, hash uint64, key, buf []byte,
) ([]byte, error) {
	for same, before := 0, (at{}); ; runtime.Gosched() {
		value, how, end, err := s.attempt(ctx, hash, key, buf)
		if err != nil || how != changed {
			return value, err
		}
		if end != before {
			same, before = 0, end
		}
		if same++; same > maxSame {
			return nil, errBroken
		}
		if ctx.Err() != nil {
			return nil, errBusy
		}
	}
}

// at is a version of a bucket.
type at struct{ bucket, version uint32 }

// isLong reports whether so many buckets of a home were got, with so many left, that it is time to
// look at the context. Only a false owner has many. Gets on one node do not look at it.
func (s *source) isLong(left uint32) bool { return (s.overflow-left)%64 == 63 }

// attempt goes through a home's buckets.
func (s *source) attempt(
	ctx context.Context, hash uint64, key, buf []byte,
) (value []byte, how attempt, end at, err error) {
	home := s.home(hash)
	moves := uint64(0)
	got, from := buf, 0 // from: of the bucket, where a get of it begins
	if !s.whole {
		got, from = buf[s.slot:], s.heads
	}
	heads := got[len(got)-s.tail:]
	end.bucket = home
	for left := s.overflow; ; left-- {
		if err := s.mem.Get(ctx, got, s.offset(end.bucket)+from); err != nil {
			return nil, 0, end, err
		}
		pair.At("bucket.got")
		end.version = committed(heads)
		b := headAt(heads, end.version)
		var h head
		h.get(b)
		if !isHead(b, &s.secret, end.bucket) || uint32(h.version) != end.version || h.home != home {
			return nil, changed, end, nil
		}
		for i, g := range h.tags {
			if g != tag(hash) {
				continue
			}
			slot := buf[:s.slot]
			if s.whole {
				slot = buf[i*s.slot:][:s.slot]
			} else {
				if err := s.mem.Get(ctx, slot, s.offset(end.bucket)+i*s.slot); err != nil {
					return nil, 0, end, err
				}
			}
			if !s.isSlot(slot, &s.secret, end.bucket, i) ||
				binary.NativeEndian.Uint64(slot[versionOff:]) > h.version {
				return nil, changed, end, nil
			}
			if string(slot[keyOff:keyOff+s.key]) == string(key) {
				return slot[s.valueOff : s.valueOff+s.value], found, end, nil
			}
		}
		if end.bucket == home {
			moves = h.moves
		} else if h.moved > moves { // the key may have been moved to a bucket that was got before
			return nil, changed, end, nil
		}
		switch {
		case s.isLong(left) && ctx.Err() != nil:
			return nil, 0, end, errBusy
		case h.next == 0:
			return nil, absent, end, nil
		case h.next < s.homes, h.next-s.homes >= s.overflow, left == 0:
			return nil, changed, end, nil // no owner does that
		}
		end.bucket = h.next
	}
}

// Rejoin is the way back after the table has ended for this reader: its owner has closed it, has
// died, or the link has failed. It opens what is published under the name then, and waits for it as
// [Open] does, with its errors; that table may have another capacity. If the table has not ended,
// nothing happens. Gets that are under way meanwhile may fail with [vmmc.ErrClosed], and so does
// Rejoin if the reader is closed meanwhile.
//
// Experimental: it may change in any release.
func (r *Reader[K, V]) Rejoin(ctx context.Context) error {
	op := "rejoin table " + strconv.Quote(r.name)
	if err := checkCall(ctx, op); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return closedError(op)
	}
	old := r.source.Load()
	if old.im.Err() == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(r.over, stop)()
	pair.At("reader.rejoins")
	s, err := r.open(ctx)
	switch {
	case err != nil && r.closed.Load():
		return closedError(op)
	case err != nil:
		return err
	}
	r.source.Store(s)
	return old.im.Close()
}

// Done is closed when the table has ended for this reader, until [Reader.Rejoin].
//
// Experimental: it may change in any release.
func (r *Reader[K, V]) Done() <-chan struct{} { return r.source.Load().im.Done() }

// Close ends the reader. Its calls fail with [vmmc.ErrClosed] then.
//
// Experimental: it may change in any release.
func (r *Reader[K, V]) Close() error {
	r.closed.Store(true)
	r.end() // a Rejoin that waits would hold mu
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source.Load().im.Close()
}

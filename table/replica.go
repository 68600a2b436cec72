package table

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Replica is a copy of a table in this process, which follows the changes of its owner.
//
// Experimental: it may change in any release.
type Replica[K comparable, V any] struct {
	own     *Table[K, V]
	from    *Reader[K, V]
	source  *source
	buf     []byte
	pending map[uint32]bool // homes whose changes are not applied
	seen    uint64          // the owner's count of changes, of which the others are applied
	busy    bool            // the last look for changes could not get them, as the owner goes on changing the same
	passes  int             // how many in succession had no room, while seen was the same

	count   atomic.Uint64 // the owner's count of changes, of which all are applied
	every   time.Duration
	ctx     context.Context //nolint:containedctx // ends with Close
	stop    context.CancelCauseFunc
	stopped chan struct{} // Closed when the replica follows no more, and err is set.
	err     error

	confirmer *confirmer // nil: it confirms nothing
	appliedMu sync.Mutex
	applied   chan struct{} // Closed and replaced when count has changed. Guarded by appliedMu.
}

// Every is how often a replica looks for changes while there are none; without it that is every
// millisecond. A look is one get of 12 bytes. It must be positive.
//
// Experimental: it may change in any release.
func Every(d time.Duration) Option { return func(o *options) { o.every = d } }

// Replicate makes a copy of the table that is published as source, and publishes it under a name of
// its own when all entries are there. Readers open it as any table. It follows the changes of the
// source's owner, which does nothing for it, until the source ends or the replica is closed.
// Errors: those of [Open] and [New]; [vmmc.ErrProtocol] if the owner's memory is not that of a table.
//
// Experimental: it may change in any release.
func Replicate[K comparable, V any](
	ctx context.Context, p *vmmc.Process, source, name string, opts ...Option,
) (*Replica[K, V], error) {
	op := fmt.Sprintf("replicate table %q as %q", source, name)
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	o := options{every: time.Millisecond}
	err := o.apply(opts)
	switch {
	case err != nil:
	case o.every <= 0:
		err = fmt.Errorf("a look for changes every %v: it must be positive", o.every)
	case o.awaits:
		err = errors.New("the option AwaitReplicas is for owners")
	}
	if err != nil {
		return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: err}
	}
	from, err := Open[K, V](ctx, p, source)
	if err != nil {
		return nil, err
	}
	s := from.source.Load()
	r := &Replica[K, V]{
		from: from, source: s, every: o.every, pending: map[uint32]bool{},
		buf: make([]byte, s.bucket), stopped: make(chan struct{}), applied: make(chan struct{}),
	}
	r.own = &Table[K, V]{typed: from.typed, geometry: s.geometry, seed: s.seed, p: p, name: name}
	if err := r.own.export(&o); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", op, err), from.Close())
	}
	r.addAll()
	if err = r.copyAll(ctx); err == nil {
		err = r.own.e.PublishAs(ctx, name)
	}
	if err == nil && o.confirms {
		r.confirmer = &confirmer{wake: make(chan struct{}, 1), ended: make(chan struct{})}
		r.confirmer.client, err = call.Dial[confirmRequest, confirmAnswer](ctx, p, o.confirm, call.Slots(1))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", op, err), r.own.Close(), from.Close())
	}
	r.ctx, r.stop = context.WithCancelCause(context.Background())
	go r.follow()
	if r.confirmer != nil {
		go r.confirm()
	}
	return r, nil
}

// copyAll catches up until the replica has all.
func (r *Replica[K, V]) copyAll(ctx context.Context) error {
	for len(r.pending) > 0 {
		more, err := r.catchUp(ctx)
		if err != nil {
			return r.from.failed(ctx, r.source, err)
		}
		if !more {
			timeout.Sleep(ctx, retryPause)
		}
	}
	return nil
}

// addAll makes all homes pending.
func (r *Replica[K, V]) addAll() {
	for home := range r.source.homes {
		r.pending[home] = true
	}
}

// follow applies changes until the source ends.
func (r *Replica[K, V]) follow() {
	defer close(r.stopped)
	for {
		more, err := r.catchUp(r.ctx)
		switch {
		case err != nil:
			r.err = err
			return
		case more:
		case r.busy || len(r.pending) > 0:
			r.sleep(min(r.every, retryPause))
		default:
			r.sleep(r.every)
		}
	}
}

// sleep waits until it is time to look for changes, or the owner says that there are some.
func (r *Replica[K, V]) sleep(d time.Duration) {
	if r.confirmer == nil {
		timeout.Sleep(r.ctx, d)
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.confirmer.wake:
	case <-timer.C:
	case <-r.ctx.Done():
	}
}

// retryPause is how long a replica waits before it tries again what the owner has changed, or
// seems to change, all the time.
const retryPause = time.Millisecond

// catchUp applies the changes that there are. more reports whether it has applied any. If it could
// not get them, as the owner goes on changing the same, they stay.
func (r *Replica[K, V]) catchUp(ctx context.Context) (more bool, err error) {
	if ctx.Err() != nil { // not all gets look at it
		return false, errBusy
	}
	more, err = r.applyChanges(ctx)
	if r.busy = errors.Is(err, errBusy) && ctx.Err() == nil; r.busy {
		return false, nil
	}
	return more, err
}

// maxPasses is how many times in succession there may be no room for the entries of an owner that
// has changed nothing meanwhile. After the first one, what it has deleted is deleted here.
const maxPasses = 4

// applyChanges is catchUp, without what is to be tried again.
func (r *Replica[K, V]) applyChanges(ctx context.Context) (more bool, err error) {
	count, err := r.source.changes(ctx)
	if err != nil || count == r.seen && len(r.pending) == 0 {
		return false, err
	}
	before := r.seen
	ok, err := r.source.changed(ctx, r.seen, count, r.pending)
	if err != nil {
		return false, err
	}
	if !ok { // the log has not all of them any more
		r.addAll()
	}
	r.seen = count
	pair.At("log.got")
	more, full, err := r.apply(ctx)
	if err != nil {
		return false, err
	}
	if len(r.pending) == 0 {
		r.setCount(count)
	}
	if !full || count != before {
		r.passes = 0
	} else if r.passes++; r.passes >= maxPasses {
		return false, errBroken
	}
	return more, nil
}

// setCount notes how many changes the replica has.
func (r *Replica[K, V]) setCount(count uint64) {
	r.appliedMu.Lock()
	defer r.appliedMu.Unlock()
	if r.count.Swap(count) != count {
		close(r.applied)
		r.applied = make(chan struct{})
	}
}

// endConfirmer ends what confirms, whose context has ended.
func (r *Replica[K, V]) endConfirmer() error {
	if r.confirmer == nil {
		return nil
	}
	<-r.confirmer.ended
	return r.confirmer.client.Close()
}

// apply gets the homes that are pending, and makes the own ones the same. more reports whether it
// has done so with any. A home stays pending if it changes all the time. It also does if there is no
// room, which full reports: keys that the owner has deleted meanwhile are still in other homes here.
// The log has those.
func (r *Replica[K, V]) apply(ctx context.Context) (more, full bool, err error) {
	homes := slices.Sorted(maps.Keys(r.pending))
	for len(homes) > 0 {
		some, theirs, err := r.collect(ctx, &homes)
		if err != nil {
			return false, false, err
		}
		pair.At("homes.got")
		for i, home := range some {
			r.own.keep(home, theirs[i])
		}
		for i, home := range some {
			if r.own.take(theirs[i]) {
				delete(r.pending, home)
				more = true
			} else {
				full = true
			}
		}
	}
	return more, full, nil
}

// What collect keeps at most, beside one home.
const (
	maxHomes = 256
	maxBytes = 16 << 20
)

// collect gets the next of the homes, and returns those that it has got.
func (r *Replica[K, V]) collect(
	ctx context.Context, homes *[]uint32,
) (some []uint32, theirs []map[string][]byte, err error) {
	for kept := 0; len(*homes) > 0 && len(some) < maxHomes && kept < maxBytes; {
		home := (*homes)[0]
		*homes = (*homes)[1:]
		entries, err := r.source.entries(ctx, home, r.buf)
		switch {
		case errors.Is(err, errBusy) && ctx.Err() == nil:
			continue
		case err != nil:
			return nil, nil, err
		}
		pair.At("home.got")
		some, theirs = append(some, home), append(theirs, entries)
		kept += len(entries) * (r.source.key + r.source.value)
	}
	return some, theirs, nil
}

// keep deletes the entries of a home whose keys are not among those of the source.
func (t *Table[K, V]) keep(home uint32, theirs map[string][]byte) {
	for _, b := range t.entriesOf(home) {
		if key := b[:t.key]; theirs[string(key)] == nil {
			t.mu.Lock()
			if !t.closed {
				t.remove(key)
			}
			t.mu.Unlock()
		}
	}
}

// take puts entries whose values differ, and reports whether there was room for all.
func (t *Table[K, V]) take(theirs map[string][]byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, value := range theirs {
		if t.closed {
			return true
		}
		p := t.find([]byte(key))
		if p.slot >= 0 && string(t.slotAt(p.b, p.slot)[t.valueOff:][:t.value]) == string(value) {
			continue
		}
		if t.put([]byte(key), value) != nil {
			return false
		}
	}
	return true
}

// maxTries is how often something is got that the owner changes meanwhile, before other things are
// done. An owner that is stopped in the middle of a change, or a false one, may have it never whole.
const maxTries = 256

// changes returns the owner's count of changes. It fails with errBusy if that is not whole.
func (s *source) changes(ctx context.Context) (uint64, error) {
	b := make([]byte, countEnd)
	for range maxTries {
		if err := s.mem.Get(ctx, b, s.log); err != nil {
			return 0, err
		}
		low := binary.NativeEndian.Uint32(b[countOff:])
		if binary.NativeEndian.Uint32(b[lowOff:]) == low {
			return uint64(binary.NativeEndian.Uint32(b[highOff:]))<<32 | uint64(low), nil
		}
		if ctx.Err() != nil {
			break
		}
		runtime.Gosched()
	}
	return 0, errBusy
}

// changed adds the homes of changes from one count to another one to a set. It returns false if the
// log has not all of them any more.
func (s *source) changed(
	ctx context.Context, from, to uint64, homes map[uint32]bool,
) (ok bool, err error) {
	if to-from >= logged {
		return false, nil
	}
	var found []uint32
	b := make([]byte, 4*logged)
	for at := from; at != to; {
		first := at % logged
		n := min(to-at, logged-first)
		if err := s.mem.Get(ctx, b[:4*n], s.log+homesLog+4*int(first)); err != nil {
			return false, err
		}
		for i := range n {
			found = append(found, binary.NativeEndian.Uint32(b[4*i:]))
		}
		at += n
	}
	// What was got is that of these changes if no later one has taken its place in the log since.
	now, err := s.changes(ctx)
	if err != nil || now-from >= logged {
		return false, err
	}
	for _, home := range found {
		if home >= s.homes {
			return false, errBroken
		}
		homes[home] = true
	}
	return true, nil
}

// entries returns a home's keys and values: of each key a value that it had meanwhile. It fails with
// errBusy if the owner changes the home all the time.
func (s *source) entries(
	ctx context.Context, home uint32, buf []byte,
) (map[string][]byte, error) {
	same, before := 0, at{}
	for range maxTries {
		entries, ok, end, err := s.attemptAll(ctx, home, buf)
		if err != nil || ok {
			return entries, err
		}
		if end != before {
			same, before = 0, end
		}
		if same++; same > maxSame {
			return nil, errBroken
		}
		if ctx.Err() != nil {
			break
		}
		runtime.Gosched()
	}
	return nil, errBusy
}

// attemptAll is attempt for all keys of a home. ok is false if the owner has changed it meanwhile.
func (s *source) attemptAll(
	ctx context.Context, home uint32, buf []byte,
) (entries map[string][]byte, ok bool, end at, err error) {
	entries = map[string][]byte{}
	moves, heads := uint64(0), buf[s.heads:s.bucket]
	end.bucket = home
	for left := s.overflow; ; left-- {
		if err := s.mem.Get(ctx, buf[:s.bucket], s.offset(end.bucket)); err != nil {
			return nil, false, end, err
		}
		end.version = committed(heads)
		b := headAt(heads, end.version)
		var h head
		h.get(b)
		if !isHead(b, &s.secret, end.bucket) || uint32(h.version) != end.version || h.home != home {
			return nil, false, end, nil
		}
		for i, g := range h.tags {
			slot := buf[i*s.slot:][:s.slot]
			switch {
			case g == 0:
				continue
			case !s.isSlot(slot, &s.secret, end.bucket, i),
				binary.NativeEndian.Uint64(slot[versionOff:]) > h.version,
				s.home(sipHash(s.seed, slot[keyOff:keyOff+s.key])) != home:
				return nil, false, end, nil
			}
			value := slices.Clone(slot[s.valueOff : s.valueOff+s.value])
			entries[string(slot[keyOff:keyOff+s.key])] = value
		}
		if end.bucket == home {
			moves = h.moves
		} else if h.moved > moves {
			return nil, false, end, nil
		}
		switch {
		case len(entries) > s.capacity: // no owner does that
			return nil, false, end, nil
		case s.isLong(left) && ctx.Err() != nil:
			return nil, false, end, errBusy
		case h.next == 0:
			return entries, true, end, nil
		case h.next < s.homes, h.next-s.homes >= s.overflow, left == 0:
			return nil, false, end, nil // no owner does that
		}
		end.bucket = h.next
	}
}

// Changes is how many changes of the owner the replica has, with all before them. Of the replicas of
// an owner that has ended, the one with the most has all changes that were confirmed.
//
// Experimental: it may change in any release.
func (r *Replica[K, V]) Changes() uint64 { return r.count.Load() }

// Behind is how many changes of the owner are not in the replica yet. Errors: as [Reader.Get].
//
// Experimental: it may change in any release.
func (r *Replica[K, V]) Behind(ctx context.Context) (uint64, error) {
	op := "ask how far behind replica " + strconv.Quote(r.own.name) + " is"
	if err := checkCall(ctx, op); err != nil {
		return 0, err
	}
	have := r.count.Load() // first, as it must not be ahead
	count, err := r.source.changes(ctx)
	for errors.Is(err, errBusy) && ctx.Err() == nil {
		timeout.Sleep(ctx, retryPause)
		count, err = r.source.changes(ctx)
	}
	if err != nil {
		return 0, r.from.failed(ctx, r.source, err)
	}
	return count - have, nil
}

// Done is closed when the replica follows no more: its source has ended, or it was closed.
//
// Experimental: it may change in any release.
func (r *Replica[K, V]) Done() <-chan struct{} { return r.stopped }

// Err is why the replica follows no more, and nil while it does.
//
// Experimental: it may change in any release.
func (r *Replica[K, V]) Err() error {
	select {
	case <-r.stopped:
	default:
		return nil
	}
	if cause := context.Cause(r.ctx); (errors.Is(r.err, errBusy) || errors.Is(r.err, vmmc.ErrCanceled)) && !r.from.closed.Load() &&
		!errors.Is(cause, context.Canceled) {
		return cause // why it confirms no more
	}
	return r.from.failed(context.Background(), r.source, r.err)
}

// Promote makes the replica a table whose owner is this process, when its source has ended
// ([Replica.Done]); before that the error is [vmmc.ErrInProgress]. The table keeps the replica's
// name and readers; [Table.PublishAs] gives it the source's name too. The replica is over then:
// close the table. Promote does not ask whether another replica was promoted, or whether the owner
// lives on where this process cannot reach it; that is for the program to decide.
//
// Experimental: it may change in any release.
func (r *Replica[K, V]) Promote() (*Table[K, V], error) {
	select {
	case <-r.stopped:
	default:
		return nil, &vmmc.Error{
			Op:   "promote replica " + strconv.Quote(r.own.name),
			Code: vmmc.ErrInProgress, Err: errors.New("its source has not ended"),
		}
	}
	r.stop(nil)
	return r.own, errors.Join(r.endConfirmer(), r.from.Close())
}

// Close ends the replica, as [Table.Close] does a table.
//
// Experimental: it may change in any release.
func (r *Replica[K, V]) Close() error {
	err := r.from.Close() // first, so that Err is ErrClosed
	r.stop(nil)
	<-r.stopped
	return errors.Join(err, r.endConfirmer(), r.own.Close())
}

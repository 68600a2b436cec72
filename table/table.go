package table

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// ErrFull is the error of a put beyond the capacity. It is also [vmmc.ErrNoMem].
//
// Experimental: it may change in any release.
var ErrFull = errors.New("the table is full")

// Option changes what [New] and [Replicate] do.
//
// Experimental: it may change in any release.
type Option func(*options)

type options struct {
	export  []vmmc.ExportOption
	permit  []vmmc.Permission // in export, too
	permits bool              // reports whether permit says who may open the table
	every   time.Duration     // of a replica

	await    string // the name of AwaitReplicas
	awaited  int    // its number
	awaits   bool   // reports whether AwaitReplicas is there
	confirm  string // the name of Confirm
	confirms bool   // reports whether Confirm is there
}

// apply applies opts.
func (o *options) apply(opts []Option) error {
	for _, f := range opts {
		if f == nil {
			return errors.New("an option is nil")
		}
		f(o)
	}
	return nil
}

// Permit lets exactly the processes open the table that match one of perms, as [vmmc.Permit] does.
//
// Experimental: it may change in any release.
func Permit(perms ...vmmc.Permission) Option {
	return func(o *options) {
		o.export = append(o.export, vmmc.Permit(perms...))
		o.permit, o.permits = append(o.permit, perms...), true
	}
}

// Table is a table of this process, which alone changes it.
//
// Experimental: it may change in any release.
type Table[K comparable, V any] struct {
	*typed[K, V]
	geometry
	secret
	p    *vmmc.Process
	name string
	seed [2]uint64

	mu     sync.RWMutex
	mem    *vmmc.Memory
	e      *vmmc.Export
	b      []byte   // the exported memory; nil when the table is closed
	n      int      // entries
	unused []uint32 // overflow buckets that no home has
	closed bool
	count  uint64 // changes

	confirmations *confirmations // nil: changes wait for no replica
}

// New makes a table with room for capacity entries and publishes it under a name, see
// [vmmc.Export.PublishAs]. This process is its owner. Errors: a [*view.TypeError], also for keys
// with floating-point numbers; [vmmc.ErrBadArg] for a capacity that cannot be; those of
// [vmmc.Process.Alloc], [vmmc.Process.Export] and PublishAs.
//
// Experimental: it may change in any release.
func New[K comparable, V any](
	ctx context.Context, p *vmmc.Process, name string, capacity int, opts ...Option,
) (*Table[K, V], error) {
	op := fmt.Sprintf("make table %q", name)
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	types, err := typesOf[K, V]()
	if err != nil {
		return nil, err
	}
	var o options
	err = o.apply(opts)
	switch {
	case err != nil:
	case o.confirms:
		err = errors.New("the option Confirm is for replicas")
	case o.awaits && (o.awaited < 1 || o.awaited > maxReplicas):
		err = fmt.Errorf("changes await %d replicas: at least 1, and at most %d", o.awaited, maxReplicas)
	}
	if err != nil {
		return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: err}
	}
	t := &Table[K, V]{typed: types, p: p, name: name}
	t.geometry = newGeometry(types.keyLayout.Size, types.valueLayout.Size)
	t.behind(prefixSize(len(types.keyLayout.Text), len(types.valueLayout.Text)))
	if err := t.setCapacity(capacity); err != nil {
		return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: err}
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	t.seed = [2]uint64{binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:])}
	if err := t.export(&o); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if o.awaits {
		if t.confirmations, err = serveConfirmations(ctx, p, &o, confirmRequest{Seed: t.seed, Export: t.e.ID(), PID: uint32(p.ID().PID)}); err != nil {
			t.confirmations = nil
			return nil, errors.Join(fmt.Errorf("%s: %w", op, err), t.Close())
		}
	}
	if err := t.e.PublishAs(ctx, name); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// export makes the table's memory, and exports it.
func (t *Table[K, V]) export(o *options) (err error) {
	if t.mem, err = t.p.Alloc(t.size()); err != nil {
		return err
	}
	t.b = t.mem.Bytes()
	t.format()
	t.e, err = pair.Export(func(id uint32) (*vmmc.Export, error) {
		return t.p.Export(id, t.b, append(slices.Clip(o.export), vmmc.ReadOnly())...)
	})
	if err != nil {
		return errors.Join(err, t.mem.Close())
	}
	return nil
}

// PublishAs gives the table another name, see [vmmc.Export.PublishAs].
//
// Experimental: it may change in any release.
func (t *Table[K, V]) PublishAs(ctx context.Context, name string) error {
	return t.e.PublishAs(ctx, name)
}

// format writes an empty table.
func (t *Table[K, V]) format() {
	t.secret = newSecret(t.seed)
	t.putPrefix(t.b, t.seed, t.keyLayout.Text, t.valueLayout.Text)
	for i := range t.homes + t.overflow {
		h := head{home: i}
		if i >= t.homes {
			h.home = noHome
			t.unused = append(t.unused, i)
		}
		h.put(headAt(t.headsOf(i), 0), &t.secret, i)
	}
}

// headsOf are the heads of a bucket, and what follows.
func (t *Table[K, V]) headsOf(b uint32) []byte { return t.b[t.offset(b)+t.heads:][:t.tail] }

// head returns a bucket's head.
func (t *Table[K, V]) head(b uint32) (h head) {
	heads := t.headsOf(b)
	h.get(headAt(heads, committed(heads)))
	return h
}

// commit makes a change of a bucket visible, in one step.
func (t *Table[K, V]) commit(b uint32, h *head) {
	h.version++
	version := uint32(h.version)
	h.put(headAt(t.headsOf(b), version), &t.secret, b)
	pair.At("head.written")
	w, err := t.e.Word(t.offset(b) + t.bucket - wordSize)
	if err != nil {
		panic(err) // each bucket has its word
	}
	// A swap and no store: the next change of the bucket must not be seen before this one, as it
	// overwrites what was valid before this one.
	w.Swap(version)
	pair.At("committed")
}

// slotAt is slot i of a bucket.
func (t *Table[K, V]) slotAt(b uint32, i int) []byte { return t.b[t.offset(b)+i*t.slot:][:t.slot] }

// putSlot writes an entry into a free slot of a bucket, for the next commit.
func (t *Table[K, V]) putSlot(b uint32, h *head, i int, key, value []byte) {
	s := t.slotAt(b, i)
	binary.NativeEndian.PutUint64(s[versionOff:], h.version+1)
	copy(s[keyOff:], key)
	pair.At("slot.begun")
	copy(s[t.valueOff:], value)
	t.sealSlot(s, &t.secret, b, i)
	pair.At("slot.written")
}

// place is where an entry is, or would be.
type place struct {
	home, b uint32
	before  uint32 // the bucket before b, if b is no home
	tag     uint32
	h       head // of b
	slot    int  // -1: there is none
}

// find returns the slot of a key, or the last bucket of its home, the only one with room.
func (t *Table[K, V]) find(key []byte) (p place) {
	hash := sipHash(t.seed, key)
	p.home, p.tag = t.home(hash), tag(hash)
	p.b = p.home
	for {
		p.h = t.head(p.b)
		for i, g := range p.h.tags {
			if g == p.tag && string(t.slotAt(p.b, i)[keyOff:][:t.key]) == string(key) {
				p.slot = i
				return p
			}
		}
		if p.h.next == 0 {
			p.slot = -1
			return p
		}
		p.before, p.b = p.b, p.h.next
	}
}

// lock takes the lock of a call that changes the table.
func (t *Table[K, V]) lock(op string) error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return t.closedError(op)
	}
	return nil
}

func (t *Table[K, V]) closedError(op string) error {
	return &vmmc.Error{Op: t.op(op), Code: vmmc.ErrClosed, Err: errors.New("the table is closed")}
}

func (t *Table[K, V]) op(what string) string { return what + " table " + strconv.Quote(t.name) }

// Put stores a value under a key, in place of the one that is there. When it returns, readers find
// the new value; before that, they find either. Errors: [ErrFull] if the key is new and the table
// has as many entries as it may, [vmmc.ErrClosed]. After an error the table is as it was, unless that
// is [ErrUnconfirmed], which only a table with [AwaitReplicas] has.
//
// Experimental: it may change in any release.
func (t *Table[K, V]) Put(ctx context.Context, k K, v V) error {
	if ctx == nil || t.confirmations != nil {
		if err := pair.CheckCall(ctx, t.op("put into")); err != nil {
			return err
		}
	}
	c := t.begin(k, 0)
	defer t.pool.Put(c)
	c.v = v
	if err := t.lock("put into"); err != nil {
		return err
	}
	err := t.put(t.keys.Of(&c.k), t.values.Of(&c.v))
	count := t.count
	t.mu.Unlock()
	if err != nil || t.confirmations == nil {
		return err
	}
	return t.confirmations.await(ctx, t.op("put into"), count)
}

// note logs a change of a home.
func (t *Table[K, V]) note(home uint32) {
	if t.confirmations != nil {
		t.confirmations.begin(t.count + 1)
	}
	log := t.b[t.log:][:logSize]
	binary.NativeEndian.PutUint32(log[homesLog+4*(t.count%logged):], home)
	t.count++
	binary.NativeEndian.PutUint32(log[highOff:], uint32(t.count>>32))
	binary.NativeEndian.PutUint32(log[lowOff:], uint32(t.count))
	w, err := t.e.Word(t.log + countOff)
	if err != nil {
		panic(err) // each log has its word
	}
	w.Swap(uint32(t.count))
	pair.At("change.noted")
	if t.confirmations != nil {
		t.confirmations.note(t.count)
	}
}

func (t *Table[K, V]) put(key, value []byte) error {
	p := t.find(key)
	more := p.slot < 0 && p.h.entries() == perBucket
	if p.slot < 0 && t.n == t.capacity || more && len(t.unused) == 0 {
		return &vmmc.Error{
			Op: t.op("put into"), Code: vmmc.ErrNoMem,
			Err: fmt.Errorf("%w: it has %d entries", ErrFull, t.n),
		}
	}
	if more {
		t.extend(&p)
	}
	i := p.h.free()
	t.putSlot(p.b, &p.h, i, key, value)
	p.h.tags[i] = p.tag
	if p.slot >= 0 {
		p.h.tags[p.slot] = 0
	} else {
		t.n++
	}
	t.commit(p.b, &p.h)
	t.note(p.home)
	return nil
}

// extend gives a home a further bucket, which is empty: a reader that comes there from where the
// bucket was before must not find an entry that others do not find yet.
func (t *Table[K, V]) extend(p *place) {
	b := t.unused[len(t.unused)-1]
	t.unused = t.unused[:len(t.unused)-1]
	h, home := t.head(b), t.head(p.home)
	h.home, h.next, h.moved, h.tags = p.home, 0, home.moves, [slots]uint32{}
	t.commit(b, &h)
	pair.At("bucket.taken")
	p.h.next = b
	t.commit(p.b, &p.h)
	pair.At("bucket.linked")
	p.before, p.b, p.h = p.b, b, h
}

// Delete removes a key, and reports whether it was there. Errors: [vmmc.ErrClosed];
// [ErrUnconfirmed], which only a table with [AwaitReplicas] has: this deletion is not confirmed, or an
// earlier one.
//
// Experimental: it may change in any release.
func (t *Table[K, V]) Delete(ctx context.Context, k K) (bool, error) {
	if ctx == nil || t.confirmations != nil {
		if err := pair.CheckCall(ctx, t.op("delete from")); err != nil {
			return false, err
		}
	}
	c := t.begin(k, 0)
	defer t.pool.Put(c)
	if err := t.lock("delete from"); err != nil {
		return false, err
	}
	was := t.remove(t.keys.Of(&c.k))
	count := t.count
	t.mu.Unlock()
	if t.confirmations == nil {
		return was, nil
	}
	// Also if the key was not there: its deletion may not be confirmed.
	return was, t.confirmations.await(ctx, t.op("delete from"), count)
}

// remove deletes a key. The hole is filled with an entry of the home's last bucket. That entry is
// in both buckets before it leaves the last one; and a reader that has seen it in neither finds in
// moved that the home's moves have gone on.
func (t *Table[K, V]) remove(key []byte) bool {
	p := t.find(key)
	if p.slot < 0 {
		return false
	}
	t.n--
	defer t.note(p.home)
	last := p
	for last.h.next != 0 {
		last.before, last.b = last.b, last.h.next
		last.h = t.head(last.b)
	}
	if last.b == p.b {
		p.h.tags[p.slot] = 0
		last.h = p.h
		if p.b == p.home || p.h.entries() > 0 {
			t.commit(p.b, &p.h)
			return true
		}
	} else {
		t.fill(&p, &last)
	}
	t.drop(&last)
	return true
}

// fill replaces an entry with one of the home's last bucket. last.h is not committed.
func (t *Table[K, V]) fill(p, last *place) {
	from := slices.IndexFunc(last.h.tags[:], func(g uint32) bool { return g != 0 })
	s := t.slotAt(last.b, from)
	to := p.h.free()
	t.putSlot(p.b, &p.h, to, s[keyOff:keyOff+t.key], s[t.valueOff:t.valueOff+t.value])
	p.h.tags[p.slot], p.h.tags[to] = 0, last.h.tags[from]
	if p.b == p.home {
		p.h.moves++
		last.h.moved = p.h.moves
	}
	t.commit(p.b, &p.h)
	pair.At("entry.copied")
	if p.b != p.home {
		home := t.head(p.home)
		home.moves++
		last.h.moved = home.moves
		t.commit(p.home, &home)
	}
	last.h.tags[from] = 0
}

// drop commits a home's last bucket, which has one entry less, and takes it from the home if it has
// none.
func (t *Table[K, V]) drop(last *place) {
	if last.h.entries() > 0 {
		t.commit(last.b, &last.h)
		return
	}
	before := t.head(last.before)
	before.next = 0
	if last.before != last.home {
		before.moved = max(before.moved, last.h.moved)
	}
	t.commit(last.before, &before)
	pair.At("bucket.dropped")
	last.h.home, last.h.next = noHome, 0
	t.commit(last.b, &last.h)
	t.unused = append(t.unused, last.b)
}

// Get returns the value of a key. Errors: [vmmc.ErrClosed].
//
// Experimental: it may change in any release.
func (t *Table[K, V]) Get(ctx context.Context, k K) (v V, ok bool, err error) {
	if ctx == nil {
		return v, false, checkCall(ctx, t.op("get from"))
	}
	c := t.begin(k, 0)
	defer t.pool.Put(c)
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return v, false, t.closedError("get from")
	}
	p := t.find(t.keys.Of(&c.k))
	if p.slot < 0 {
		return v, false, nil
	}
	copy(t.values.Of(&c.v), t.slotAt(p.b, p.slot)[t.valueOff:])
	return c.v, true, nil
}

// Len is the number of entries.
//
// Experimental: it may change in any release.
func (t *Table[K, V]) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.n
}

// All ranges over the entries, in no order. The loop may change the table, and so may others
// meanwhile: an entry that is there from the loop's beginning to its end comes once, others come or
// do not. When the table is closed, the loop ends.
//
// Experimental: it may change in any release.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		c := &callMemory[K, V]{}
		for home := range t.homes {
			for _, b := range t.entriesOf(home) {
				copy(t.keys.Of(&c.k), b)
				copy(t.values.Of(&c.v), b[t.valueOff-keyOff:])
				if !yield(c.k, c.v) {
					return
				}
			}
		}
	}
}

// entriesOf copies the keys and values of a home.
func (t *Table[K, V]) entriesOf(home uint32) (entries [][]byte) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return nil
	}
	for b := home; ; {
		h := t.head(b)
		for i, g := range h.tags {
			if g != 0 {
				entries = append(entries, slices.Clone(t.slotAt(b, i)[keyOff:t.sumOff]))
			}
		}
		if b = h.next; b == 0 {
			return entries
		}
	}
}

// Close ends the table: its name is free, and readers' calls fail with [vmmc.ErrRevoked]. Errors:
// those of [vmmc.Export.Close]; call Close again then. A second call does nothing.
//
// Experimental: it may change in any release.
func (t *Table[K, V]) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.n = true, 0
	if t.confirmations != nil {
		if err := t.confirmations.close(); err != nil {
			return fmt.Errorf("%s: %w", t.op("close"), err)
		}
	}
	err := t.e.Close()
	if err == nil {
		err = t.mem.Close()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.op("close"), err)
	}
	return nil
}

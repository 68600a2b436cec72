package update

import (
	"sort"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

var began = time.Now()

// now is a clock that costs little.
func now() int64 { return int64(time.Since(began)) }

// Slices of cold memory that are looked at between two passes over what is hot:
// small ones while there are hot pages that a look would hold up.
const (
	slice     = 16 << 20
	thinSlice = 1 << 20
	coldEvery = 8         // passes
	compared  = 128 << 10 // of a slice, where the kernel does not help

	// How often pages are protected again, and how often where comparing all that may
	// have been stored to takes no longer than a millisecond or so.
	protectEvery = 5 * time.Millisecond
	lazyProtect  = 20 * time.Millisecond
	lazySize     = 16 << 20
)

// pass carries over what has changed: in the edges, hot pages and a slice of the
// cold ones, or, when full, everywhere. The caller has the turn.
func (b *Binding) pass(full bool) (changed bool, err error) {
	upTo := b.asked.Load()
	full = full || upTo != b.passed.Load()
	b.put = false
	b.passes.Add(1)
	raised := b.lookAtFlags()
	full = full || raised
	if b.fresh {
		err = b.contents()
	}
	if err == nil {
		err = b.edges()
	}
	if err == nil {
		err = b.warm()
	}
	switch {
	case err != nil:
	case full:
		for at := b.lo; at < b.hi && err == nil; {
			to := min(at+slice, b.hi)
			err = b.coldSlice(at, to)
			at = to
		}
	case b.lo < b.hi && (b.hot.n == 0 || b.passes.Load()%coldEvery == 0):
		err = b.someCold()
	}
	if err == nil && raised {
		err = b.publish()
		b.fresh = false
	}
	if err == nil && b.put {
		err = b.c.Far.Done()
	}
	if err == nil && full && upTo > b.passed.Load() {
		b.passed.Store(upTo)
		b.c.Moved()
	}
	return b.put, err
}

// contents sends all data as the twin has it. The flags come when all has been
// compared, as always.
func (b *Binding) contents() error {
	for from := 0; from < len(b.c.Near); from += longest {
		to := min(from+longest, len(b.c.Near))
		if err := b.outside(from, to, b.send); err != nil {
			return err
		}
	}
	return nil
}

func (b *Binding) edges() error {
	if err := b.data(0, b.lo); err != nil {
		return err
	}
	return b.data(b.hi, len(b.c.Near))
}

// warm compares the hot pages.
func (b *Binding) warm() error {
	for i := range b.hot.n {
		before := b.words.Load()
		if err := b.data(b.hot.at[i], b.hot.at[i]+shm.PageSize); err != nil {
			return err
		}
		if b.words.Load() != before {
			b.hot.seen[i] = now()
		}
	}
	return nil
}

// cool leaves pages to the scan that have not changed since t. They are protected
// first and compared after it.
func (b *Binding) cool(t int64) error {
	for i := b.hot.n - 1; i >= 0; i-- {
		if b.hot.seen[i] > t {
			continue
		}
		page := b.hot.at[i]
		if b.watch != nil {
			if err := b.watch.Protect(page-b.lo, shm.PageSize); err != nil {
				return err
			}
		}
		b.hot.drop(i)
		if err := b.data(page, page+shm.PageSize); err != nil {
			return err
		}
	}
	return nil
}

// someCold looks at the next cold pages.
func (b *Binding) someCold() error {
	n := slice
	switch {
	case b.watch == nil:
		n = compared
	case b.hot.n > 0:
		n = thinSlice
	}
	if b.cold >= b.hi {
		b.cold = b.lo
	}
	to := min(b.cold+n, b.hi)
	err := b.coldSlice(b.cold, to)
	b.cold = to
	return err
}

// coldSlice looks at all pages of [from, to).
func (b *Binding) coldSlice(from, to int) error {
	if from == b.lo {
		b.sweep()
	}
	if b.watch == nil {
		b.heating = true
		err := b.data(from, to)
		b.heating = false
		return err
	}
	for at := from; at < to; {
		b.scans.Add(1)
		n, end, err := b.watch.Written(at-b.lo, to-b.lo, b.protecting, b.runs[:])
		if err != nil || n == 0 {
			return err
		}
		if !b.protecting && at == from && n < len(b.runs) {
			if done, err := b.heat(b.runs[:n]); done || err != nil {
				return err
			}
		}
		// Many, or just protected: these pages are compared now, and again in the
		// next sweep as long as they are not protected.
		for _, r := range b.runs[:n] {
			if err := b.data(b.lo+int(r.Start), b.lo+int(r.End)); err != nil {
				return err
			}
		}
		at = b.lo + end
	}
	return nil
}

// sweep begins to look at the cold pages from the first on. Those that were stored to
// are protected again only now and then: much that is written over and over costs
// its writer a fault a page for each time.
func (b *Binding) sweep() {
	t, every := now(), protectEvery
	if b.hi-b.lo <= lazySize {
		every = lazyProtect
	}
	if b.protecting = t-b.protected >= int64(every); b.protecting {
		b.protected = t
	}
}

// heat makes pages hot that were stored to, if there is room for all of them. They
// were compared already if they are hot.
func (b *Binding) heat(runs []shm.PageRun) (done bool, err error) {
	fresh := 0
	for _, r := range runs {
		for page := b.lo + int(r.Start); page < b.lo+int(r.End); page += shm.PageSize {
			if !b.hot.has(page) {
				fresh++
			}
			if fresh > maxHot-b.hot.n {
				return false, nil
			}
		}
	}
	for _, r := range runs {
		for page := b.lo + int(r.Start); page < b.lo+int(r.End); page += shm.PageSize {
			if b.hot.has(page) {
				continue
			}
			b.hot.add(page)
			if err := b.data(page, page+shm.PageSize); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// longest is the longest message, in bytes. What follows it goes in the next.
const longest = 64 << 10

// data compares [from, to) without its flags, and sends what has changed.
func (b *Binding) data(from, to int) error { return b.outside(from, to, b.carry) }

// outside does something with the parts of [from, to) that are no flags.
func (b *Binding) outside(from, to int, do func(from, to int) error) error {
	if fs := b.c.Flags; len(fs) > 0 {
		for _, f := range fs[sort.Search(len(fs), func(i int) bool { return fs[i].To > from }):] {
			if f.From >= to {
				break
			}
			if err := do(from, f.From); err != nil {
				return err
			}
			from = f.To
		}
	}
	return do(from, to)
}

func (b *Binding) carry(from, to int) error {
	for from < to {
		end := min(from+longest, to)
		at, upTo := b.twin.Next(from, end)
		if err := b.send(at, upTo); err != nil {
			return err
		}
		from = upTo
	}
	return nil
}

// send sends what the twin has in [from, to).
func (b *Binding) send(from, to int) error {
	if from >= to {
		return nil
	}
	b.put = true
	b.messages.Add(1)
	b.words.Add(uint64(to-from) / shm.WordSize)
	if b.heating && to-from <= shm.PageSize { // much at once is not soon followed by more
		b.hot.add(b.lo + (from-b.lo)/shm.PageSize*shm.PageSize)
	}
	return b.c.Far.Put(b.life, from, b.twin.Copied(from, to))
}

// lookAtFlags loads all flags, and says whether one was stored to.
func (b *Binding) lookAtFlags() bool {
	i, raised := 0, b.fresh
	for _, f := range b.c.Flags {
		for off := f.From; off < f.To; off += shm.WordSize {
			b.raised[i] = b.twin.Near(off).Load()
			raised = raised || b.raised[i] != b.twin.At(off)
			i++
		}
	}
	return raised
}

// publish sends the flags that have changed, as they were loaded.
func (b *Binding) publish() error {
	i := 0
	for _, f := range b.c.Flags {
		for off := f.From; off < f.To; off += shm.WordSize {
			if v := b.raised[i]; v != b.twin.At(off) || b.fresh {
				b.twin.Set(off, v)
				b.put = true
				b.messages.Add(1)
				b.words.Add(1)
				if err := b.c.Far.Publish(b.life, off, b.twin.Copied(off, off+shm.WordSize)); err != nil {
					return err
				}
			}
			i++
		}
	}
	return nil
}

package update

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Slices of cold memory that are looked at between two passes over what is hot:
// small ones while there are hot pages that a look would hold up.
const (
	slice     = 16 << 20
	thinSlice = 1 << 20
	compared  = 128 << 10 // of a slice, where the kernel does not help

	// How often pages are protected again, and how often where comparing all that may
	// have been stored to takes no longer than a millisecond or so.
	protectEvery = 5 * time.Millisecond
	lazyProtect  = 20 * time.Millisecond
	lazySize     = 16 << 20
)

// allCold looks at all cold pages that were stored to, with several threads if it may and there is much to look
// at, and gives up when cut says so.
func (b *Binding) allCold(several bool, cut func() bool) error {
	several = several && b.ahead != nil
	if several {
		if err := b.ahead.ask(b, cut); err != nil {
			return err
		}
	}
	if cut() { // before the sweep, which protects at most so often
		return errCut
	}
	b.sweep()
	if several {
		return b.foundCold(cut)
	}
	return b.eachCold(b.lo, b.hi, cut)
}

// eachCold looks at the cold pages of [from, to), which are of this sweep.
func (b *Binding) eachCold(from, to int, cut func() bool) error {
	for at := from; at < to; {
		if cut() {
			return errCut
		}
		end, err := b.coldSlice(at, min(at+slice, to), cut)
		if err != nil {
			return err
		}
		at = end
	}
	return nil
}

// someCold looks at the next cold pages.
func (b *Binding) someCold() (err error) {
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
	if b.cold == b.lo {
		b.sweep()
	}
	b.cold, err = b.coldSlice(b.cold, min(b.cold+n, b.hi), b.hurried)
	return err
}

// coldSlice looks at the pages of [from, to), until cut says that it is enough, and
// says how far it has come. Pages that it has protected are all compared.
func (b *Binding) coldSlice(from, to int, cut func() bool) (end int, err error) {
	if b.watch == nil {
		b.heating = true
		end, err = b.some(from, to, cut)
		b.heating = false
		return end, err
	}
	for at := from; at < to; {
		b.scans.Add(1)
		n, upTo, err := b.watch.Written(at-b.lo, to-b.lo, b.protecting, b.runs[:])
		if err != nil || n == 0 {
			return to, err
		}
		if end, err := b.noted(b.runs[:n], at == from && n < len(b.runs), cut); err != nil || end < b.lo+int(b.runs[n-1].End) {
			return end, err
		}
		at = b.lo + upTo
	}
	return to, nil
}

// noted makes pages hot that were stored to, if they are few, or else compares them now, and again in the next
// sweep as long as they are not protected.
func (b *Binding) noted(runs []shm.PageRun, few bool, cut func() bool) (end int, err error) {
	if few && !b.protecting {
		if done, err := b.heat(runs); done || err != nil {
			return b.lo + int(runs[len(runs)-1].End), err
		}
	}
	return b.written(runs, cut)
}

// written compares pages that were stored to.
func (b *Binding) written(runs []shm.PageRun, cut func() bool) (end int, err error) {
	if b.protecting { // no scan finds them any more
		cut = func() bool { return false }
	}
	for _, r := range runs {
		to := b.lo + int(r.End)
		if end, err = b.some(b.lo+int(r.Start), to, cut); err != nil || end < to {
			break
		}
	}
	return end, err
}

// some compares [from, to) until cut says that it is enough, and says how far it has come.
func (b *Binding) some(from, to int, cut func() bool) (end int, err error) {
	for from < to && err == nil {
		step := min(from+thinSlice, to)
		if err = b.data(from, step); err == nil {
			from = step
		}
		if from < to && cut() {
			break
		}
	}
	return from, err
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

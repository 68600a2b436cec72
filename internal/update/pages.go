package update

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Slices of cold memory that are looked at between two passes over hot pages: small ones while
// there are hot pages that a look would delay.
const (
	slice         = 16 << 20
	thinSlice     = 1 << 20
	comparedSlice = 128 << 10 // Without the kernel's help.

	// How often pages are protected again, and how often where comparing all that may
	// have been stored to takes no longer than a millisecond or so.
	protectEvery     = 5 * time.Millisecond
	rareProtectEvery = 20 * time.Millisecond
	rareProtectSize  = 16 << 20
)

// scanAllCold looks at all cold pages that were stored to, and gives up when cut returns true. It
// uses several threads if it may and there is much to look at.
func (b *Binding) scanAllCold(several bool, cut func() bool) error {
	several = several && b.prescan != nil
	if several {
		if err := b.prescan.run(b, cut); err != nil {
			return err
		}
	}
	if cut() { // before the sweep, which protects only so often
		return errInterrupted
	}
	b.sweep()
	if several {
		return b.scanFound(cut)
	}
	return b.scanCold(b.lo, b.hi, cut)
}

// scanCold looks at the cold pages of [from, to), which are of this sweep.
func (b *Binding) scanCold(from, to int, cut func() bool) error {
	for at := from; at < to; {
		if cut() {
			return errInterrupted
		}
		end, err := b.scanColdSlice(at, min(at+slice, to), cut)
		if err != nil {
			return err
		}
		at = end
	}
	return nil
}

// scanSomeCold looks at the next cold pages.
func (b *Binding) scanSomeCold() (err error) {
	n := slice
	switch {
	case b.watch == nil:
		n = comparedSlice
	case b.hot.n > 0:
		n = thinSlice
	}
	if b.nextCold >= b.hi {
		b.nextCold = b.lo
	}
	if b.nextCold == b.lo {
		b.sweep()
	}
	b.nextCold, err = b.scanColdSlice(b.nextCold, min(b.nextCold+n, b.hi), b.mustStop)
	return err
}

// scanColdSlice looks at the pages of [from, to) until cut returns true, and returns how far it has
// come. Pages that it has protected are all compared.
func (b *Binding) scanColdSlice(from, to int, cut func() bool) (end int, err error) {
	if b.watch == nil {
		b.heating = true
		end, err = b.compareUntil(from, to, cut)
		b.heating = false
		return end, err
	}
	for at := from; at < to; {
		b.scans.Add(1)
		n, upTo, err := b.watch.Written(at-b.lo, to-b.lo, b.protecting, b.runs[:])
		if err != nil || n == 0 {
			return to, err
		}
		if end, err := b.handleWritten(b.runs[:n], at == from && n < len(b.runs), cut); err != nil ||
			end < b.lo+int(b.runs[n-1].End) {
			return end, err
		}
		at = b.lo + upTo
	}
	return to, nil
}

// handleWritten makes pages hot that were stored to if they are few. Otherwise it compares them
// now; while they are not protected, the next sweep compares them again.
func (b *Binding) handleWritten(
	runs []shm.PageRun, few bool, cut func() bool,
) (end int, err error) {
	if few && !b.protecting {
		if done, err := b.markHot(runs); done || err != nil {
			return b.lo + int(runs[len(runs)-1].End), err
		}
	}
	return b.compareWritten(runs, cut)
}

// compareWritten compares pages that were stored to.
func (b *Binding) compareWritten(runs []shm.PageRun, cut func() bool) (end int, err error) {
	if b.protecting { // no scan finds them any more
		cut = func() bool { return false }
	}
	for _, r := range runs {
		to := b.lo + int(r.End)
		if end, err = b.compareUntil(b.lo+int(r.Start), to, cut); err != nil || end < to {
			break
		}
	}
	return end, err
}

// compareUntil compares [from, to) until cut returns true, and returns how far it has come.
func (b *Binding) compareUntil(from, to int, cut func() bool) (end int, err error) {
	for from < to && err == nil {
		step := min(from+thinSlice, to)
		if err = b.sendChangedData(from, step); err == nil {
			from = step
		}
		if from < to && cut() {
			break
		}
	}
	return from, err
}

// sweep begins a look at all cold pages. Pages that were stored to are protected again only
// occasionally: memory that is written again and again costs its writer one fault per page each
// time.
func (b *Binding) sweep() {
	t, every := now(), protectEvery
	if b.hi-b.lo <= rareProtectSize {
		every = rareProtectEvery
	}
	if b.protecting = t-b.lastProtect >= int64(every); b.protecting {
		b.lastProtect = t
	}
}

// maxHot is how many pages are compared in every pass. 64 take some 4 us.
const maxHot = 64

// hotPages are the pages that were stored to lately. They stay writable, so the next store costs
// nothing, and are compared in each pass.
type hotPages struct {
	n         int
	at        [maxHot]int   // where each begins
	changedAt [maxHot]int64 // when it last changed
}

func (h *hotPages) has(page int) bool {
	for _, p := range h.at[:h.n] {
		if p == page {
			return true
		}
	}
	return false
}

// add makes a page hot, if there is room.
func (h *hotPages) add(page int) bool {
	if h.has(page) {
		return true
	}
	if h.n == maxHot {
		return false
	}
	h.at[h.n], h.changedAt[h.n] = page, now()
	h.n++
	return true
}

func (h *hotPages) drop(i int) {
	h.n--
	h.at[i], h.changedAt[i] = h.at[h.n], h.changedAt[h.n]
}

// markCold leaves pages to the scan that have not changed since t. They are protected first and
// compared after it.
func (b *Binding) markCold(t int64) error {
	for i := b.hot.n - 1; i >= 0; i-- {
		if b.hot.changedAt[i] > t {
			continue
		}
		page := b.hot.at[i]
		if b.watch != nil {
			if err := b.watch.Protect(page-b.lo, shm.PageSize); err != nil {
				return err
			}
		}
		b.hot.drop(i)
		if err := b.sendChangedData(page, page+shm.PageSize); err != nil {
			return err
		}
	}
	return nil
}

// markHot makes pages hot that were stored to, if there is room for all of them. Pages that were
// hot before are compared already.
func (b *Binding) markHot(runs []shm.PageRun) (done bool, err error) {
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
			if err := b.sendChangedData(page, page+shm.PageSize); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

package update

import "github.com/vmmc-go/vmmc/internal/shm"

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

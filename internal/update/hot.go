package update

// maxHot is how many pages are compared in every pass. 64 take some 4 us.
const maxHot = 64

// hotPages are the pages that were stored to lately. They stay writable, so that
// the next store costs nothing, and are compared in each pass.
type hotPages struct {
	n    int
	at   [maxHot]int   // where each begins
	seen [maxHot]int64 // when it last changed
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
	h.at[h.n], h.seen[h.n] = page, now()
	h.n++
	return true
}

func (h *hotPages) drop(i int) {
	h.n--
	h.at[i], h.seen[i] = h.at[h.n], h.seen[h.n]
}

package wait

import "sync/atomic"

// Plain looks come first where a wait has nothing but memory to look at. What another processor stores is
// there in less time than a looking phase takes to begin and to end.
const (
	plainLooks = 64
	plainCalls = 16   // of a condition, which may take longer than a word
	plainWaits = 4096 // as untold, of waits: half a millisecond or so
)

// Plain says whether l holds, after a few looks. Any number of goroutines may look.
func (b *Budget) Plain(l *Look) bool {
	looks := b.Looks()
	if l.Until != nil {
		looks = min(looks, plainCalls)
	}
	for range looks {
		if l.Done() {
			return true
		}
	}
	return false
}

// Looks is how many plain looks a wait begins with, which is counted here, when nothing has come yet: what is done after the last
// one is what the caller waits for. On a processor that is shared there are none: nothing new
// comes there before the other end has run.
func (b *Budget) Looks() int {
	if b.shared.Load() {
		return 0
	}
	if !b.answer.Load() {
		b.answer.Store(true)
	}
	if b.plain.Add(1)%plainWaits == 0 {
		tell()
	}
	return plainLooks
}

// Answer is set by each wait that begins with plain looks, for whoever sends next: what comes may be an answer, for which somebody
// looks. It is a hint, which orders nothing.
func (b *Budget) Answer() *atomic.Bool { return &b.answer }

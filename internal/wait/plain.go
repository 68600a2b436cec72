package wait

import "sync/atomic"

// Plain looks come first where a wait has nothing but memory to look at. What another processor stores is
// there in less time than a looking phase takes to begin and to end.
const (
	plainLooks = 64
	plainCalls = 16   // of a condition, which may take longer than a word
	plainWaits = 4096 // as untold, of waits: half a millisecond or so
)

// PollPlain says whether l holds, after a few looks. Any number of goroutines may look.
func (b *Budget) PollPlain(l *Cond) bool {
	looks := b.PlainLooks()
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

// PlainLooks is how many plain looks a wait begins with, which is counted here, when nothing has come yet: what is done after the last
// one is what the caller waits for. On a processor that is shared there are none: nothing new
// comes there before the other end has run.
func (b *Budget) PlainLooks() int {
	if b.shared.Load() {
		return 0
	}
	if !b.answerHint.Load() {
		b.answerHint.Store(true)
	}
	if b.plainCount.Add(1)%plainWaits == 0 {
		notifyRuntime()
	}
	return plainLooks
}

// AnswerHint is set by each wait that begins with plain looks, for whoever sends next: what comes may be an answer, for which somebody
// looks. It is a hint, which orders nothing.
func (b *Budget) AnswerHint() *atomic.Bool { return &b.answerHint }

package wait

import "sync/atomic"

// A wait that has only memory to look at begins with plain looks. What another CPU stores is there
// in less time than a polling phase takes to begin and to end.
const (
	plainLooks = 64
	// Calls of a condition, which may take longer than a word.
	plainCalls = 16
	// As notifyAfter, in waits: about half a millisecond.
	plainWaits = 4096
)

// PollPlain reports whether l holds, after a few looks. Any number of goroutines may look.
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

// PlainLooks returns how many plain looks a wait begins with, and counts the wait. It is called
// when nothing has come yet, because what follows the last look delays the caller. On a shared CPU
// it returns 0: nothing new comes before the peer has run.
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

// AnswerHint returns a flag that each wait with plain looks sets for the next sender: its message
// may be an answer that another process polls for. It is a hint that orders nothing.
func (b *Budget) AnswerHint() *atomic.Bool { return &b.answerHint }

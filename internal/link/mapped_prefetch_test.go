package link

import "testing"

// The first message after a wait is taken for an answer, wherever it is said to go.
func TestAnswersArePrefetched(t *testing.T) {
	c := newCopier(t)
	for _, off := range []int{0, len(c.mem), -4} {
		if c.a.PlainLooks() == 0 {
			t.Fatal("there are no plain looks")
		}
		if !c.m.answerHint.Load() {
			t.Error("the hint of a wait is not set")
		}
		if c.m.Prefetch(off); c.m.answerHint.Load() {
			t.Error("the second message after a wait would be taken for an answer, too")
		}
	}
}

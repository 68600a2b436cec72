package link

import "testing"

// What counts as progress of a link whose connections break one after another.
func TestProgress(t *testing.T) {
	rq := &Requester{}
	rq.redialer.rq = rq
	step := func(what string, want bool) {
		t.Helper()
		if got := rq.redialer.madeProgress(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	step("nothing is waited for", true)
	step("nothing still", true)
	rq.lastSeq.Store(2)
	step("a message was begun since", true)
	step("it has not come", false)
	rq.redialer.partialBytes = 100
	step("a part of it has", true)
	rq.redialer.partialBytes = 60
	step("a smaller part", false)
	rq.redialer.partialBytes = 100
	step("the same part", false)
	rq.ackedSeq.Store(2)
	rq.fetches.count.Store(1)
	step("all of it has, and an answer is owed", true)
	step("nothing of the answer", false)
	rq.redialer.replyBytes = 50
	step("a part of the answer", true)
	rq.redialer.replyBytes = 30
	step("less of it", false)
	rq.redialer.replyBytes = 50
	step("as much again", false)
	rq.fetches.count.Store(0)
	rq.repliedSeq = 1
	step("the answer", true)
	step("nothing is waited for any more", true)
}

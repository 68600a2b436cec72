package link

import "testing"

// What counts as progress of a link whose connections break one after another.
func TestProgress(t *testing.T) {
	o := &Out{}
	step := func(what string, want bool) {
		t.Helper()
		if got := o.advanced(); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	step("nothing is waited for", true)
	step("nothing still", true)
	o.seq.Store(2)
	step("a message was begun since", true)
	step("it has not come", false)
	o.partial = 100
	step("a part of it has", true)
	o.partial = 60
	step("a smaller part", false)
	o.partial = 100
	step("the same part", false)
	o.acked.Store(2)
	o.gets = []*fetch{{}}
	step("all of it has, and an answer is owed", true)
	step("nothing of the answer", false)
	o.got = 50
	step("a part of the answer", true)
	o.got = 30
	step("less of it", false)
	o.got = 50
	step("as much again", false)
	o.gets, o.replied = nil, 1
	step("the answer", true)
	step("nothing is waited for any more", true)
}

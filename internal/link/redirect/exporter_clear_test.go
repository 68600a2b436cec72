package redirect

import (
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// Code outside of Go clears the end of data without the exporter's lock. A message that was cleared
// before DataEnd begins is not returned.
func TestDataEndDoesNotReturnAClearedMessage(t *testing.T) {
	const messages = 1 << 21
	post, err := shmlayout.NewPost()
	if err != nil {
		t.Fatal(err)
	}
	claim, err := shmlayout.NewClaim()
	if err != nil {
		t.Fatal(err)
	}
	s := &Shared{Post: post, Claim: claim, LinkEnded: func() bool { return false }}
	defer s.retire()
	r := NewExporter(nil, messages*4)
	r.Share(s)
	var cleared atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(1); n < messages; n++ {
			claim.End(n).Store(n * 4)
			claim.Messages().Store(n)
			s.clear()
			cleared.Store(n)
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
		}
		before := cleared.Load()
		if off, ok := r.DataEnd(); ok {
			if off/4 <= before {
				t.Fatalf("the last word is that of message %d, and %d were cleared before the call", off/4, before)
			}
		}
	}
}

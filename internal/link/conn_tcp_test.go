package link

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// What is bulky is a long message to a near end until it is acknowledged.
func TestBulkInFlight(t *testing.T) {
	for _, c := range []struct {
		name string
		near bool
		size int
		want bool
	}{{"long, near", true, gatherable, true}, {"long, far", false, gatherable, false}, {"short, near", true, 64, false}} {
		t.Run(c.name, func(t *testing.T) {
			rq, far := requesterTo(t)
			rq.tmu.Lock()
			rq.tx.burst.LowRTT = c.near
			rq.tmu.Unlock()
			sendAsync(t, rq, c.size)
			discardFrom(t, far, framed(c.size))
			if got := rq.bulkInFlight(); got != c.want {
				t.Errorf("it is bulky: %v, want %v", got, c.want)
			}
			sendRaw(t, far, wire.Header{Type: wire.Ack, Ack: 1}, nil)
			for rq.ackedSeq.Load() < 1 {
				if err := rq.err(); err != nil {
					t.Fatal(err)
				}
			}
			if rq.bulkInFlight() {
				t.Error("it is acknowledged, and bulky")
			}
		})
	}
}

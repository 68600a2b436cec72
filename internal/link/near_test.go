package link

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// What is bulky is a long message to a near end until it is acknowledged.
func TestBulky(t *testing.T) {
	for _, c := range []struct {
		name string
		near bool
		size int
		want bool
	}{{"long, near", true, gatherable, true}, {"long, far", false, gatherable, false}, {"short, near", true, 64, false}} {
		t.Run(c.name, func(t *testing.T) {
			o, far := importer(t)
			o.tmu.Lock()
			o.tx.load.near = c.near
			o.tmu.Unlock()
			begin(t, o, c.size)
			swallow(t, far, framed(c.size))
			if got := o.bulky(); got != c.want {
				t.Errorf("it is bulky: %v, want %v", got, c.want)
			}
			say(t, far, wire.Header{Type: wire.Ack, Ack: 1}, nil)
			for o.acked.Load() < 1 {
				if err := o.err(); err != nil {
					t.Fatal(err)
				}
			}
			if o.bulky() {
				t.Error("it is acknowledged, and bulky")
			}
		})
	}
}

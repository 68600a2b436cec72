package daemon

import (
	"net/netip"
	"testing"
)

// Where all addresses have as many connections, the latest is not the one that is closed.
func TestTheOldestOfEqualsMakesRoom(t *testing.T) {
	p := newPreauthLimiter(0)
	var last []from
	young := 0
	for i := range 4 * maxUnauthConns {
		c := come("10.0.0.2:1")
		c.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)
		_, evicted := p.admit(c)
		if evicted != nil {
			for _, l := range last[max(0, len(last)-50):] {
				if evicted == l {
					young++
				}
			}
		}
		last = append(last, c)
	}
	if young > 0 {
		t.Errorf("of %d that had to go %d were among the 50 youngest of 1024", 3*maxUnauthConns, young)
	}
}

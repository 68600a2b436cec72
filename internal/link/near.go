package link

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Where the far end is near, what is on its way, and not acknowledged, is in memory that both ends' processors share a cache for, as long as it is
// not much. TCP lets it be more: a sender that is the faster one fills megabytes of buffers, and from then on each byte is
// written to memory and read from there. Messages of 512 KiB and more come at twice the rate where that does not happen. Half a
// megabyte in the time of a round trip is then more than a connection carries, and what two messages of 256 KiB and their headers need; farther away it would be too little, and
// TCP finds out by itself what is not.
const (
	nearBy  = 50 * time.Microsecond // of a round trip; half a megabyte in it are 10 GB/s
	bounded = 264 << 10             // twice that may be on its way
)

// keepShort bounds what is on its way on a connection that has just begun, and has it leave faster than BBR would let it: a
// sender that spreads it over the round trip by timers is half as fast.
func (s *stream) keepShort() {
	if t := unix.RoundTrip(s.fd); t > 0 && t <= nearBy {
		s.tx.load.near = true
		unix.BoundSend(s.fd, bounded)
		unix.Unpace(s.fd)
	}
}

package link

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Where the far end is near, what is on its way, and not acknowledged, is in memory that both ends' processors share a cache for, as long as it is
// not much. TCP lets it be more: a sender that is the faster one fills megabytes of buffers, and from then on each byte is
// written to memory and read from there. Two megabytes in the time of a round trip are then more than a connection carries, and what eight messages of
// 256 KiB and their headers need; farther away it would be too little, and TCP finds out by itself what is not. A system that lets nobody have so
// much (net.core.wmem_max) has less on its way, and no bound of ours is missed.
const (
	nearBy  = 50 * time.Microsecond // of a round trip; two megabytes in it are 40 GB/s
	bounded = 1056 << 10            // twice that may be on its way
)

// keepShort bounds what is on its way on a connection that has just begun, where the far end is near, and has it leave at once: a sender that
// spreads it over the round trip by timers, as BBR does, is a half to a quarter as fast. A connection farther away has the system's congestion control.
func (s *stream) keepShort() {
	if t := unix.RoundTrip(s.fd); t > 0 && t <= nearBy {
		s.tx.load.near = true
		unix.BoundSend(s.fd, bounded)
		unix.Unpace(s.fd)
		return
	}
	unix.Pace(s.fd)
}

// bulky says whether a long message to a near end is not acknowledged yet: it will be before long, or makes room in the socket.
func (s *stream) bulky() bool {
	o, ok := s.h.(*Out)
	return ok && s.tx.bulk.Load() > o.acked.Load()
}

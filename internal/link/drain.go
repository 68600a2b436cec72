package link

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Drain ends a link because the process at its far end is gone, or is taken for gone
// (docs/models/gone.pml). What that process has sent is received first: until the connection ends,
// nothing comes for timeout.Drain, or timeout.Drained has passed. It returns at once, and may be
// called under any lock. why is [ErrGone] too.
func (o *Out) Drain(why error) { o.drain(why, func() {}) }

// Drain is that of the importing side. The importer hears which of its messages were applied.
func (in *In) Drain(why error) { in.drain(why, func() { in.owe(true); in.push() }) }

// Spoke reports whether the importer has shown that it lived when the link had begun: it has sent a
// frame, or on this node has taken the link. It is for the function that is called when the link
// has ended.
func (in *In) Spoke() bool { return in.spoke }

// betweenDrains is the pause between two looks at a link that ends.
const betweenDrains = 5 * time.Millisecond

// beforeBye is how long nothing comes before the far end is told that the link is over. A process
// that has ended closes its connections itself: what is written to them then has the far end's
// kernel drop what it has not sent yet.
const beforeBye = 100 * time.Millisecond

func (s *stream) drain(why error, settle func()) {
	s.Expect(why) // a connection that is lost from here on is not made anew
	s.e.wg.Go(func() {
		s.receiveRest(why, func() {
			s.rmu.Lock()
			settle()
			s.rmu.Unlock()
			s.control(wire.Header{Type: wire.Bye, Word: wire.ByeOther})
		})
	})
}

// receiveRest receives until the link ends, and ends it when nothing is left. It looks at the
// socket itself, and then at the clock: a background goroutine that gets no processor does not make
// the far end silent.
func (s *stream) receiveRest(why error, bye func()) {
	begun := time.Now()
	last, heard := begun, uint32(0)
	for looks := 0; !s.broken.Load(); looks++ {
		if s.torn.Load() { // what a lost connection has brought was received
			s.fail(why)
			return
		}
		if s.try() {
			s.receive(drain)
			s.release()
		}
		s.rmu.Lock()
		h := s.heard
		s.rmu.Unlock()
		now := time.Now()
		if h != heard {
			heard, last, looks = h, now, 0
		}
		if bye != nil && (now.Sub(last) > beforeBye || now.Sub(begun) > timeout.Drain) {
			bye()
			bye = nil
		}
		silent := now.Sub(last) > timeout.Drain && looks > int(timeout.Drain/betweenDrains)/4 // the process may have been stopped
		if silent || now.Sub(begun) > timeout.Drained {
			s.fail(why)
			return
		}
		within(s.life, betweenDrains)
	}
}

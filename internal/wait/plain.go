package wait

import "sync/atomic"

// Plain is the first looks of waits that have nothing but memory to look at. What another processor stores is
// there in less time than a looking phase takes to begin and to end.
type Plain struct{ waits atomic.Uint32 }

const (
	plainLooks = 64
	plainWaits = 4096 // as untold, of waits: half a millisecond or so
)

// Look says whether l holds, after a few looks. It counts before them, when nothing has come yet: what is done after the last
// one is what the caller waits for. Any number of goroutines may look.
func (p *Plain) Look(l *Look) bool {
	if p.waits.Add(1)%plainWaits == 0 {
		tell()
	}
	for range plainLooks {
		if l.Done() {
			return true
		}
	}
	return false
}

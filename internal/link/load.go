package link

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// mostParts is how many long frames one call writes at most, and fewestParts how many it always may.
const (
	mostParts   = unix.MaxPieces / 2
	fewestParts = 4
)

// load is how many long frames may be begun together. What is begun is written before all else, so more of it makes short messages
// wait; but who has more to write leaves the socket full while it sees to acknowledgements, and begins with less of it
// half empty. So a connection whose far end is near, and takes a full load in no time, is given more of it.
type load struct {
	near  bool // and what is on its way is bounded, so a load takes the time that it is under way
	extra int  // parts beyond fewestParts
	full  time.Time
}

// The time that a full load takes: below the first one it may be twice as much, and above the second one half.
const (
	light = 200 * time.Microsecond
	heavy = 500 * time.Microsecond
)

// more says whether another part may come behind count of them.
func (l *load) more(count int) bool {
	if count < fewestParts+l.extra {
		return true
	}
	if l.near {
		l.full = time.Now()
	}
	return false
}

// gone notes that all that was begun is written.
func (l *load) gone() {
	if l.full.IsZero() {
		return
	}
	took := time.Since(l.full)
	l.full = time.Time{}
	n := fewestParts + l.extra
	switch {
	case took < light:
		n = min(2*n, mostParts)
	case took > heavy:
		n = max(n/2, fewestParts)
	}
	l.extra = n - fewestParts
}

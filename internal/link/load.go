package link

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// mostParts is how many long frames one call writes at most, and fewestParts how many it always may.
const (
	mostParts   = unix.MaxPieces / 2
	fewestParts = 4
)

// chunk is the longest payload of a frame where the far end is not near. One call writes as many bytes as its parts could have
// with that, and to a near end in as few frames as there are messages: where one ends a call to receive ends as well, and of 1 MiB
// in four frames a tenth less moves than of as much in one. So the longest of all is a whole load.
const chunk = wire.MaxChunk / mostParts

// load is how many long frames may be begun together. What is begun is written before all else, so more of it makes short messages
// wait; but who has more to write leaves the socket full while it sees to acknowledgements, and begins with less of it
// half empty. So a connection whose far end is near, and takes a full load in no time, is given more of it.
type load struct {
	near  bool // and what is on its way is bounded, so that of several loads each takes the time that one is under way
	extra int  // parts beyond fewestParts
	bytes int  // of payload in the parts so far, or in those that are being written
	full  time.Time
}

// longPart is what the parts of a load have in the mean at least, as those of messages of 64 KiB, where its time says anything of a load of whole chunks.
const longPart = 60 << 10

// The time that a full load takes: below the first one it may be twice as much, and above the second one half.
const (
	light = 200 * time.Microsecond
	heavy = 500 * time.Microsecond
)

// parts is how many the next load may have.
func (l *load) parts() int { return fewestParts + l.extra }

// room is how many bytes of payload the next load may have.
func (l *load) room() int { return l.parts() * chunk }

// most is the longest payload of the next frame.
func (l *load) most() int {
	if l.near {
		return max(chunk, l.room()-l.bytes)
	}
	return chunk
}

// weight is how many parts a load of count of them is at least, each of a chunk.
func (l *load) weight(count int) int { return max(count, l.bytes/chunk) }

// more says whether another part may come behind count of them, of which the last one has a payload of size bytes.
func (l *load) more(count, size int) bool {
	l.bytes += size
	if count < l.parts() && l.room()-l.bytes >= chunk/2 { // a last word is in its header, so there may be a little room behind a full load
		return true
	}
	if l.near && l.bytes >= count*longPart {
		l.full = time.Now()
	}
	return false
}

// gone notes that all that was begun is written.
func (l *load) gone() {
	l.bytes = 0
	if l.full.IsZero() {
		return
	}
	took := time.Since(l.full)
	l.full = time.Time{}
	n := l.parts()
	switch {
	case took < light:
		n = min(2*n, mostParts)
	case took > heavy:
		n = max(n/2, fewestParts)
	}
	l.extra = n - fewestParts
}

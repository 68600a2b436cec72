package members

import (
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// maxDeparted bounds the number of ended processes that are remembered. Links of forgotten ones end
// when their resume limit expires.
const maxDeparted = 16 << 10

// departed is the list of this node's processes that have ended or left, as far as this daemon saw
// it or the journal says so. A process that joined an earlier daemon and has not rejoined is in it
// only if the kernel says that it has ended.
type departed struct {
	mu   sync.Mutex
	list []departure // oldest first, from next on. Guarded by mu.
	next int         // Guarded by mu.
	last int64       // when the latest one ended, as departure has it. Guarded by mu.
}

// departure is the end of a process.
type departure struct {
	nodeproto.ProcessID
	// Seconds since 1970; of a daemon before this one that did not write it, when this one began.
	at int64
}

// add adds a process that has ended now.
func (d *departed) add(id nodeproto.ProcessID) { d.addAt(departure{id, time.Now().Unix()}) }

func (d *departed) addAt(e departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = max(d.last, e.at)
	if len(d.list) < maxDeparted {
		d.list = append(d.list, e)
	} else {
		d.list[d.next] = e
		d.next = (d.next + 1) % maxDeparted
	}
}

// askedAfter is for how long other nodes ask about a process that has ended: as long as their
// processes wait for a link to be resumed, if they notice its loss by its silence.
const askedAfter = timeout.Resume + timeout.Hello + timeout.Silence

// asked reports whether another node may ask about one of them still.
func (d *departed) asked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last > 0 && time.Since(time.Unix(d.last, 0)) < askedAfter
}

// latest returns up to n of them, the latest last.
func (d *departed) latest(n int) []departure {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := slices.Concat(d.list[d.next:], d.list[:d.next])
	return all[max(0, len(all)-n):]
}

// has searches the whole list, which takes about 20 us. It runs a few times a second, for links
// that have lost their connection. A map beside the list went on growing, by 1.6 MB, where the
// oldest went as new ones came.
func (d *departed) has(id nodeproto.ProcessID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.list, func(o departure) bool {
		return o.Incarnation == id.Incarnation && o.ProcessID == id
	})
}

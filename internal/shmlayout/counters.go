package shmlayout

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// What is counted of a link, by its side: the importing one counts what it asks for,
// the exporting one what it was asked.
const (
	Messages      = iota // sends
	Bytes                // in them, and in updates
	Notifications        // notifications
	Gets                 //
	GetBytes             //
	Atomics              //
	Updates              // passes of automatic update that had something to carry
	Resumes              // times that a broken connection was made anew
	Resent               // messages that were sent again
	Duplicates           // messages that were not, because the exporter had them
	Acks                 // acknowledgements, sent or received; far from what a sender counts
	ResentBytes          // in what was sent again
	NumCounters          // so many there are
)

// The counters of a process: a header, and a slot for each of its links. The header and the first two links have
// one page: most processes have no more.
const (
	MaxLinks = 1024

	sumSlots     = 2                   // the last slots
	linkSlots    = MaxLinks - sumSlots // those before are for links that there are
	countersHead = 128
	slotCounters = 256 // before it is the slot's description
	slotSize     = slotCounters + shm.ShardedCounterSize + 256
	countersSize = countersHead + MaxLinks*slotSize

	// In the header, and then in a slot.
	topAt   = 16
	stateAt = 0
	kindAt  = 4
	begunAt = 8
	pidAt   = 16
	lenAt   = 20
	incAt   = 24
	nameAt  = 32
	maxPeer = 64

	kindImporting = 1
	kindMapped    = 2
	kindEncrypted = 4
)

// LinkPeer is the process at the other end of a link, whose ends may differ in what
// they say of each other: each speaks for itself.
type LinkPeer struct {
	Node        string
	PID         uint32
	Incarnation uint64
}

// Counters is a memory that a process counts in and its node reads. It is apart from
// the pages that peers map: how much a process has to do with others is not their
// concern. The last two slots are of links that have ended, and of those for which there
// is no slot: of those that exported and of those that imported.
type Counters struct {
	r    *shm.Region
	mu   sync.Mutex
	free []int
	top  int
}

// NewCounters makes this process's own.
func NewCounters() (*Counters, error) {
	r, err := create("vmmc-counters", kindCounters, countersSize, true)
	if err != nil {
		return nil, err
	}
	return &Counters{r: r}, nil
}

// Descriptor is for the node; the caller closes it.
func (c *Counters) Descriptor() (int, error) { return c.r.Descriptor() }

// Retire gives the memory back. Counting may go on, in vain.
func (c *Counters) Retire() { c.r.Retire() }

// sumSlot is the slot of the ended links of a side.
func sumSlot(importer bool) int {
	if importer {
		return linkSlots + 1
	}
	return linkSlots
}

// A Slot counts for one link.
type Slot struct {
	shm.ShardedCounter
	c        *Counters
	index    int
	importer bool
}

func (c *Counters) at(n int) []byte { return c.r.Bytes()[countersHead+n*slotSize:][:slotSize] }

func (c *Counters) counter(n int) shm.ShardedCounter {
	return shm.ShardedCounterAt(c.r, countersHead+n*slotSize+slotCounters)
}

// Take gives a link a slot; out is of the importing side. It is not seen before
// [Slot.Describe].
func (c *Counters) Take(importer bool) Slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := sumSlot(importer)
	switch last := len(c.free) - 1; {
	case last >= 0:
		n, c.free = c.free[last], c.free[:last]
	case c.top < linkSlots:
		n = c.top
		c.top++
		shm.Word(c.r.Bytes(), topAt).Store(uint32(c.top))
	}
	return Slot{ShardedCounter: c.counter(n), c: c, index: n, importer: importer}
}

// Describe says which link it is.
func (s *Slot) Describe(mapped, encrypted bool, peer LinkPeer) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.index >= linkSlots {
		return
	}
	b := s.c.at(s.index)
	kind := uint32(0)
	if s.importer {
		kind |= kindImporting
	}
	if mapped {
		kind |= kindMapped
	}
	if encrypted {
		kind |= kindEncrypted
	}
	binary.LittleEndian.PutUint32(b[kindAt:], kind)
	binary.LittleEndian.PutUint64(b[begunAt:], uint64(time.Now().UnixNano()))
	binary.LittleEndian.PutUint32(b[pidAt:], peer.PID)
	binary.LittleEndian.PutUint64(b[incAt:], peer.Incarnation)
	binary.LittleEndian.PutUint32(b[lenAt:], uint32(copy(b[nameAt:nameAt+maxPeer], peer.Node)))
	shm.Word(b, stateAt).Store(shm.Word(b, stateAt).Load() | 1)
}

// Free ends the slot; what it has counted is kept in the sum of all that ended. Who
// counts late counts for the slot's next link.
func (s *Slot) Free() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.index >= linkSlots {
		return
	}
	state := shm.Word(s.c.at(s.index), stateAt)
	state.Store(state.Load()&^1 + 2)
	ended := s.c.counter(sumSlot(s.importer))
	ended.Merge(s.ShardedCounter)
	s.Clear()
	s.c.free = append(s.c.free, s.index)
	s.index = sumSlot(s.importer) // whoever counts may be using the tally
}

// AddLate counts for a link that has ended, or is about to: its slot may be another's.
func (s *Slot) AddLate(counter int, n uint64) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	ended := s.c.counter(sumSlot(s.importer))
	ended.AddLocked(counter, n)
}

// Counts are the numbers of a link, by the constants above.
type Counts [NumCounters]uint64

// Add adds another's numbers.
func (c *Counts) Add(o *Counts) {
	for i, n := range o {
		c[i] += n
	}
}

// Sub takes what was counted before away; of one who counts backwards nothing is left.
func (c *Counts) Sub(o *Counts) {
	for i, n := range o {
		c[i] -= min(c[i], n)
	}
}

// Link is what a process says of a link.
type Link struct {
	Slot      int
	Serial    uint32 // of the slot's links
	Importing bool   // the process imports
	Mapped    bool   // on one node; messages may go by the stream there too
	Secret    bool   // all that goes over it is encrypted
	Begun     time.Time
	Peer      LinkPeer
	Counts    Counts
}

// Reader looks at another process's counters.
type Reader struct{ f *os.File }

// OpenCounters takes a received descriptor, which it owns also when it fails.
func OpenCounters(fd int) (*Reader, error) {
	f, err := shm.OpenFile(fd, countersSize)
	if err != nil {
		return nil, err
	}
	return &Reader{f}, nil
}

// Close gives the descriptor back.
func (r *Reader) Close() { _ = r.f.Close() }

// Ended are the sums of links that there were, by the side of the process.
type Ended struct{ Exports, Imports Counts }

// rereads is how often Read tries to see no link end.
const rereads = 4

// Read gives the links that there are, and the sums of those that there were. Of a link that ends meanwhile the slot may be
// read before that and the sum after it: what it counted would be there twice, and less the next time. So it is read again
// where a sum has changed, a few times: those for whom there is no slot may count all the time.
func (r *Reader) Read() (links []Link, ended Ended, err error) {
	for range rereads {
		was, err := r.ended()
		if err != nil {
			return nil, ended, err
		}
		if links, err = r.links(); err != nil {
			return nil, ended, err
		}
		if ended, err = r.ended(); err != nil || ended == was {
			return links, ended, err
		}
	}
	return links, ended, nil
}

// links reads what was taken of the slots.
func (r *Reader) links() (links []Link, err error) {
	head := make([]byte, topAt+4)
	if _, err := r.f.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	k, v := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	if k != kindCounters || v != version {
		return nil, fmt.Errorf("%w: kind %#x version %d, want %#x version %d", ErrLayout, k, v, kindCounters, version)
	}
	top := min(int(binary.LittleEndian.Uint32(head[topAt:])), linkSlots)
	const batch = 32
	for n := 0; n < top; n += batch {
		s, err := r.slots(n, min(batch, top-n))
		if err != nil {
			return nil, err
		}
		for i := 0; len(s) > 0; i, s = i+1, s[slotSize:] {
			if l, ok := parse(s[:slotSize]); ok {
				l.Slot, l.Counts = n+i, counted(s)
				links = append(links, l)
			}
		}
	}
	return links, nil
}

// ended reads the sums.
func (r *Reader) ended() (e Ended, err error) {
	s, err := r.slots(linkSlots, sumSlots)
	if err != nil {
		return e, err
	}
	return Ended{Exports: counted(s), Imports: counted(s[slotSize:])}, nil
}

// slots reads count slots from n on.
func (r *Reader) slots(n, count int) ([]byte, error) {
	b := make([]byte, count*slotSize)
	if _, err := r.f.ReadAt(b, int64(countersHead+n*slotSize)); err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	return b, nil
}

// counted are the numbers of a slot.
func counted(s []byte) Counts {
	all := shm.Sum(s[slotCounters:])
	return Counts(all[:NumCounters])
}

// parse reads a slot's description; what no honest process writes is no link.
func parse(s []byte) (l Link, ok bool) {
	state, kind := binary.LittleEndian.Uint32(s[stateAt:]), binary.LittleEndian.Uint32(s[kindAt:])
	length := binary.LittleEndian.Uint32(s[lenAt:])
	if state&1 == 0 || length > maxPeer {
		return l, false
	}
	return Link{
		Serial: state, Importing: kind&kindImporting != 0, Mapped: kind&kindMapped != 0, Secret: kind&kindEncrypted != 0,
		Begun: time.Unix(0, int64(binary.LittleEndian.Uint64(s[begunAt:]))),
		Peer: LinkPeer{
			Node: string(s[nameAt : nameAt+length]),
			PID:  binary.LittleEndian.Uint32(s[pidAt:]), Incarnation: binary.LittleEndian.Uint64(s[incAt:]),
		},
	}, true
}

package shmlayout

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Counters of a link, by its side: the importing side counts what it requests, the exporting side
// what it serves.
const (
	Messages      = iota // sends
	Bytes                // in them, and in updates
	Notifications        // notifications
	Gets                 //
	GetBytes             //
	Atomics              //
	// Passes of automatic update that had something to carry.
	Updates
	Resumes // Times that a lost connection was made again.
	Resent  // Messages sent again.
	// Messages not sent again because the exporter had them.
	Duplicates
	// Acknowledgements sent or received; not on the cache line of a sender's counters.
	Acks
	ResentBytes // in what was sent again
	NumCounters // Their number.
)

// The counters of a process: a header, and a slot for each of its links. The header and the first
// two links share one page: most processes have no more links.
const (
	MaxLinks = 1024

	sumSlots     = 2                   // The last slots.
	linkSlots    = MaxLinks - sumSlots // The slots before them, for existing links.
	countersHead = 128
	slotCounters = 256 // Before it is the slot's description.
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
	connAt  = nameAt + maxPeer // a ConnState

	kindImporting = 1
	kindMapped    = 2
	kindEncrypted = 4
)

// LinkPeer is the process at the other end of a link. The two ends may differ in what they say of
// each other: each speaks for itself.
type LinkPeer struct {
	Node        string
	PID         uint32
	Incarnation uint64
}

// Counters is memory that a process counts in and its node reads. It is separate from the pages
// that peers map, because a process's traffic with others is not their concern. The last two slots
// are the sums of links that have ended and of those for which there was no slot, by side.
type Counters struct {
	r    *shm.Region
	mu   sync.Mutex
	free []int
	top  int
}

// NewCounters makes those of this process.
func NewCounters() (*Counters, error) {
	r, err := create("vmmc-counters", kindCounters, countersSize, true)
	if err != nil {
		return nil, err
	}
	return &Counters{r: r}, nil
}

// Descriptor returns a descriptor for the node. The caller closes it.
func (c *Counters) Descriptor() (int, error) { return c.r.Descriptor() }

// Retire gives the memory back. Counting may go on, without effect.
func (c *Counters) Retire() { c.r.Retire() }

// sumSlot is the slot of a side's ended links.
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

// Take gives a link a slot; importer says that it is of the importing side. The slot is not visible
// before [Slot.Describe].
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

// Describe records which link it is.
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

// SetState records the state of the link's connection.
func (s *Slot) SetState(to ConnState) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.index < linkSlots {
		shm.Word(s.c.at(s.index), connAt).Store(uint32(to))
	}
}

// Free ends the slot. Its counts are added to the sum of all ended links. A late count goes to the
// slot's next link.
func (s *Slot) Free() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.index >= linkSlots {
		return
	}
	state := shm.Word(s.c.at(s.index), stateAt)
	state.Store(state.Load()&^1 + 2)
	shm.Word(s.c.at(s.index), connAt).Store(uint32(ConnUnknown))
	ended := s.c.counter(sumSlot(s.importer))
	ended.Merge(s.ShardedCounter)
	s.Clear()
	s.c.free = append(s.c.free, s.index)
	s.index = sumSlot(s.importer) // a goroutine that counts may be using the counters
}

// AddLate counts for a link that has ended or is about to: its slot may be another link's.
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

// Sub subtracts what was counted before. Of a process that counts backwards nothing is left.
func (c *Counts) Sub(o *Counts) {
	for i, n := range o {
		c[i] -= min(c[i], n)
	}
}

// Link is what a process says of a link.
type Link struct {
	Slot      int
	Serial    uint32 // Of the slot's links.
	Importing bool   // The process imports.
	// On one node; messages may use the stream there too.
	Mapped bool
	Secret bool // All its traffic is encrypted.
	State  ConnState
	Begun  time.Time
	Peer   LinkPeer
	Counts Counts
}

// Reader reads another process's counters.
type Reader struct{ f *os.File }

// OpenCounters takes ownership of a received descriptor, also when it fails.
func OpenCounters(fd int) (*Reader, error) {
	f, err := shm.OpenFile(fd, countersSize)
	if err != nil {
		return nil, err
	}
	return &Reader{f}, nil
}

// Close gives the descriptor back.
func (r *Reader) Close() { _ = r.f.Close() }

// Ended are the sums of ended links, by the side of the process.
type Ended struct{ Exports, Imports Counts }

// rereads is how often Read tries to see no link end.
const rereads = 4

// Read returns the existing links and the sums of those that have ended. If a link ends meanwhile,
// its slot may be read before that and the sum after it, and its counts would be there twice, and
// less the next time. So Read repeats when a sum has changed, a few times: links without a slot may
// count all the time.
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

// links reads the slots that were ever taken.
func (r *Reader) links() (links []Link, err error) {
	head := make([]byte, topAt+4)
	if _, err := r.f.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	k, v := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:])
	if k != kindCounters || v != version {
		return nil, fmt.Errorf("%w: kind %#x version %d, want %#x version %d",
			ErrLayout, k, v, kindCounters, version)
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

// counted returns the numbers of a slot.
func counted(s []byte) Counts {
	all := shm.Sum(s[slotCounters:])
	return Counts(all[:NumCounters])
}

// parse reads a slot's description. A description that no honest process writes is no link.
func parse(s []byte) (l Link, ok bool) {
	state, kind := binary.LittleEndian.Uint32(s[stateAt:]), binary.LittleEndian.Uint32(s[kindAt:])
	length := binary.LittleEndian.Uint32(s[lenAt:])
	if state&1 == 0 || length > maxPeer {
		return l, false
	}
	return Link{
		Serial: state, Importing: kind&kindImporting != 0, Mapped: kind&kindMapped != 0, Secret: kind&kindEncrypted != 0,
		State: ConnState(min(binary.LittleEndian.Uint32(s[connAt:]), math.MaxUint8)),
		Begun: time.Unix(0, int64(binary.LittleEndian.Uint64(s[begunAt:]))),
		Peer: LinkPeer{
			Node: string(s[nameAt : nameAt+length]),
			PID:  binary.LittleEndian.Uint32(s[pidAt:]), Incarnation: binary.LittleEndian.Uint64(s[incAt:]),
		},
	}, true
}

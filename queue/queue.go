package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/view"
)

// The letterbox is exported under the name. It has T's layout as its label, and the magic. Any
// process that may dial can write to it, so nothing else is read there.
const (
	magicOff      = 0  // 8 bytes
	bellOff       = 60 // a word: that of diallers' notifications
	letterboxSize = 64

	magic = "vmmcqu\x00\x04"
)

// A lane is the consumer's export for one producer: a header, which the producer reads when it
// dials, and a ring of slots. Value i has slot i modulo their number, counted downwards from the
// end. A slot is a value, padded to words, and the word number(i). With 4 slots:
//
//	header | value 3, number | value 2, number | value 1, number | value 0, number
//	                          \______ a message with values 1 and 2 ______/
//
// The last word of a message, which arrives last, is the number of its first value: that which the
// consumer expects next. Once the consumer sees it, all of the message is there. It looks at no
// number before it has seen the one before (docs/models: queue).
const (
	slotsOff   = 0  // a word: the number of slots, a power of two
	marksOff   = 4  // a word: 1 if the producer is to say how far it is, in the state below
	startOff   = 8  // 8 bytes: the number of the first value
	countOff   = 16 // a word: the number of the value behind the last one, modulo 2^32
	stateOff   = 20 // a word: the producer's state
	recordOff  = 24 // a word: in a queue of records the length of the longest one, plus 1
	laneHeader = 64
)

// The states of a producer. A producer of a queue that ends ([Producers]) sends each to its lane:
// it has joined before Dial returns, and it has ended, together with the count, behind the last
// value. So a lane whose producer is gone without an end mark is one whose producer was lost.
const (
	stateNone = iota
	stateJoined
	stateEnded
)

// A producer's export has the listener's answer, and a cumulative acknowledgement: the number of
// the next value that the consumer will take, modulo 2^32. It is the flow control, too: a producer
// has at most as many values that are not acknowledged as its lane has slots. A word behind it is 1
// when the consumer is closed: it also revokes the lane of a producer that it takes for a lost one.
const (
	takenOff     = 64
	closedOff    = 68
	producerSize = 72
)

const wordSize = 4

// noWait is a context that has ended. A send looks at it only before it has to wait.
var noWait = func() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}()

// geometry is how the slots lie in a lane.
type geometry struct {
	slots uint64 // a power of two
	shift uint   // its logarithm
	value int    // bytes of a value
	slot  int    // bytes of a slot
}

func newGeometry(slots uint64, value int) geometry {
	r := geometry{slots: slots, value: value, slot: (value+wordSize-1)/wordSize*wordSize + wordSize}
	for 1<<r.shift < slots {
		r.shift++
	}
	return r
}

// size is that of a lane.
func (r *geometry) size() int { return laneHeader + int(r.slots)*r.slot }

// offset is where value i's slot lies in its lane.
func (r *geometry) offset(i uint64) int { return laneHeader + int(r.slots-1-i&(r.slots-1))*r.slot }

// number is the last word of value i's slot. It differs from that of the value before in the slot,
// and is never 0, which the slot has at first.
func (r *geometry) number(i uint64) uint32 { return uint32(i>>r.shift)<<1 | 1 }

// quarter is how many values the consumer takes at most before it acknowledges them.
func (r *geometry) quarter() uint64 { return max(r.slots/4, 1) }

// Option changes what [Listen] does.
//
// Experimental: it may change in any release.
type Option func(*options)

type options struct {
	slots  int
	export []vmmc.ExportOption // of letterbox and lanes
	permit []vmmc.ExportOption // of the letterbox
	start  uint64

	producers int  // how many there may be at a time
	bounded   bool // reports whether MaxProducers has set producers
	total     int  // how many a queue that ends has in all
	ends      bool // reports whether total bounds the number of producers

	record int // the length of the longest record, or noRecords
}

// noRecords is the record length of a queue of values.
const noRecords = -1

var defaults = options{slots: 1024, producers: 1024}

// setBounds lets a queue that ends have all its producers at a time, unless MaxProducers says less.
func (o *options) setBounds() {
	if o.ends && !o.bounded {
		o.producers = o.total
	}
}

// The bounds of Slots, and how much memory a producer may have.
const (
	maxSlots = 1 << 24
	maxLane  = 1 << 30
)

// Slots is for how many values each producer has room; without it that is 1,024. It is rounded up
// to a power of two, and at most 2^24. The memory is the consumer's, at most 1 GiB a producer.
//
// Experimental: it may change in any release.
func Slots(n int) Option { return func(o *options) { o.slots = n } }

// MaxProducers is how many producers there may be at a time; without it that is 1,024. [Dial] of
// the next one fails with [vmmc.ErrNoMem]. One that has ended counts until its values are taken.
// With [Producers] this bounds how many of these there are at a time, and without it all may be
// there.
//
// Experimental: it may change in any release.
func MaxProducers(n int) Option {
	return func(o *options) { o.producers, o.bounded = n, true }
}

// Producers is how many producers the queue has in all, and makes the queue end: when so many have
// been closed and all values are taken, gets return [ErrEnd]. A producer that ends without a Close
// is told by a [*LostError]. [Dial] of one more fails with [vmmc.ErrNoMem], see [Consumer.Replace].
//
// Experimental: it may change in any release.
func Producers(n int) Option { return func(o *options) { o.total, o.ends = n, true } }

// Permit lets exactly the processes dial that match one of perms, as [vmmc.Permit] does. A process
// that may dial can also keep others from dialling later.
//
// Experimental: it may change in any release.
func Permit(perms ...vmmc.Permission) Option {
	return func(o *options) { o.permit = append(o.permit, vmmc.Permit(perms...)) }
}

// typed is what producers and consumers have of T.
type typed[T any] struct {
	layout view.Layout
	values shm.Values[T]
}

func typeOf[T any]() (t typed[T], err error) {
	if t.layout, err = view.LayoutOf[T](); err != nil {
		return t, err
	}
	t.values, err = shm.ValuesOf[T]()
	return t, err
}

// laneGeometry returns that of the lanes by the options.
func (o *options) laneGeometry(size int) (geometry, error) {
	if o.slots < 1 || o.slots > maxSlots {
		return geometry{}, fmt.Errorf("%d slots: at least 1, and at most %d", o.slots, maxSlots)
	}
	if o.ends && o.total < 1 {
		return geometry{}, fmt.Errorf("%d producers in all: at least 1", o.total)
	}
	if o.producers < 1 {
		return geometry{}, fmt.Errorf("%d producers: at least 1", o.producers)
	}
	if o.record < noRecords || o.record > maxRecord {
		return geometry{}, fmt.Errorf("records of %d bytes: at least 0, and at most %d", o.record, maxRecord)
	}
	slots := uint64(1)
	for slots < max(uint64(o.slots), leastSlots(o.record)) {
		slots *= 2
	}
	r := newGeometry(slots, size)
	if r.size() > maxLane {
		return geometry{}, fmt.Errorf("%d slots of %d bytes: at most %d bytes", slots, r.slot, maxLane)
	}
	return r, nil
}

// writeHeader writes a lane's header.
func (r *geometry) writeHeader(b []byte, o *options) {
	binary.NativeEndian.PutUint32(b[slotsOff:], uint32(r.slots))
	binary.NativeEndian.PutUint64(b[startOff:], o.start)
	if o.ends {
		binary.NativeEndian.PutUint32(b[marksOff:], 1)
	}
	binary.NativeEndian.PutUint32(b[recordOff:], uint32(o.record+1))
}

// readHeader reads a lane's header, whose exporter may not be a consumer of this package. The lane
// has size bytes, a value has value bytes.
func readHeader(b []byte, size, value int) (r geometry, start uint64, err error) {
	slots := uint64(binary.NativeEndian.Uint32(b[slotsOff:]))
	if slots == 0 || slots > maxSlots || slots&(slots-1) != 0 || slots > uint64(maxLane/value) {
		return r, 0, fmt.Errorf("the lane has %d slots of more than %d bytes", slots, value)
	}
	if r = newGeometry(slots, value); size < r.size() {
		return r, 0, fmt.Errorf("the lane has %d bytes for %d slots of %d", size, slots, r.slot)
	}
	return r, binary.NativeEndian.Uint64(b[startOff:]), nil
}

// checkCall refuses calls that could hang.
func checkCall(ctx context.Context, op string) error {
	switch {
	case vmmc.InHandler():
		return &vmmc.Error{Op: op, Code: vmmc.ErrNotInHandler, Err: vmmc.ErrNotInHandler}
	case ctx == nil:
		return &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: errors.New("the context is nil")}
	}
	return nil
}

// contextError is the error of a context that has ended.
func contextError(ctx context.Context, op string) error {
	code := vmmc.ErrTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = vmmc.ErrCanceled
	}
	return &vmmc.Error{Op: op, Code: code, Err: context.Cause(ctx)}
}

func closedError(op string) error {
	return &vmmc.Error{Op: op, Code: vmmc.ErrClosed, Err: errors.New("the queue is closed")}
}

// buffer is memory that is exported.
type buffer struct {
	*vmmc.Export
	mem *vmmc.Memory
}

// newBuffer exports n bytes that init has filled.
func newBuffer(
	p *vmmc.Process, n int, init func([]byte), opts ...vmmc.ExportOption,
) (buffer, error) {
	mem, err := p.Alloc(n)
	if err != nil {
		return buffer{}, err
	}
	if init != nil {
		init(mem.Bytes())
	}
	e, err := pair.Export(func(id uint32) (*vmmc.Export, error) {
		return p.Export(id, mem.Bytes(), opts...)
	})
	if err != nil {
		return buffer{}, errors.Join(err, mem.Close())
	}
	return buffer{e, mem}, nil
}

func (b buffer) Close() error {
	if err := b.Export.Close(); err != nil {
		return err
	}
	return b.mem.Close()
}

package link

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// small is the longest payload that is copied beside its header.
const small = 448

// transmitter writes frames one after another; all of it is under tmu.
type transmitter struct {
	io     unix.IO
	buf    [wire.HeaderSize + small]byte
	big    *[bufferSize]byte // in place of buf, while many frames are under way
	parts  [mostParts]part
	staged *[wire.MostChecked]byte                       // a payload that is checked, while it is under way
	heads  *[mostParts - 1][wire.HeaderSize + small]byte // of the parts but the first, while there are any
	load   load                                          // how many parts one call writes
	check  bool                                          // payloads have checksums; set before the start
	cipher *encrypting                                   // nil: in clear
	first  int                                           // part under way
	count  int                                           // of parts in use, the first ones included
	begun  uint64                                        // frames begun
	gone   uint64                                        // frames written whole
	number uint32                                        // of the next frame on this connection, modulo 2^32
	ctl    []wire.Header                                 // frames that go before all others
	toPad  int                                           // short frames until a pad is due; 0: it is, negative: none is
	bell   bool                                          // a bell is owed
	held   bool                                          // next has more, and waits for acknowledgements
	grants []granting                                    // answers to imports, oldest first
	own    wire.Header                                   // of this side's own frames; here so that none allocates
	room   wait.Tick                                     // moves when the socket has room again

	bulk     atomic.Uint64 // the last long message to a near end; grows with tmu
	loan     atomic.Uint64 // the first message of which anything may be left, or 0; with tmu
	stuck    atomic.Bool   // the socket has no room for what there is; with tmu
	attended atomic.Int32  // waiters that try again between their looks; with tmu
	armed    bool          // an event will come, or is on its way
	soon     bool          // who writes may come again soon: see offer
	turn     int           // bytes that who writes may write yet: see turn; 0: there is no bound, negative: none
}

// part is what is not written yet of some frames, and of the last one's payload.
type part struct {
	head []byte // a copy
	pay  []byte // the sender's or the exporter's memory, if it is long
	seq  uint64 // the message that it is of, which cannot have arrived yet; 0: copies, and more may come behind them
	kept bool   // pay is a copy
}

func (t *transmitter) drop() {
	t.ctl = nil
	clear(t.parts[:])
	t.first, t.count = 0, 0
	t.giveBack()
	if t.cipher != nil {
		t.cipher.Drop()
		t.cipher = nil
	}
	for _, g := range t.grants {
		if g.fd >= 0 {
			_ = unix.Close(g.fd)
		}
	}
	t.grants = nil
}

// restart forgets what a connection has left.
func (t *transmitter) restart() {
	t.drop()
	t.gone, t.number = t.begun, 0
	t.loan.Store(0)
	t.stuck.Store(false)
	t.bell, t.armed = false, false
	t.load = load{}
}

func (t *transmitter) giveBack() {
	if t.big != nil {
		buffers.Put(t.big)
		t.big = nil
	}
	if t.heads != nil {
		heads.Put(t.heads)
		t.heads = nil
	}
	if t.staged != nil {
		stages.Put(t.staged)
		t.staged = nil
	}
}

// most is the longest payload of a frame.
func (t *transmitter) most() int {
	if t.check {
		return wire.MostChecked
	}
	return t.load.most()
}

var stages = sync.Pool{New: func() any { return new([wire.MostChecked]byte) }}

// summed copies a payload that is checked: what is sent is then what was summed, though
// its memory is written to meanwhile. A short one goes behind its header.
func (t *transmitter) summed(h *wire.Header, behind, payload []byte) []byte {
	to := behind
	if len(payload) > small {
		t.staged = stages.Get().(*[wire.MostChecked]byte)
		to = t.staged[:]
	}
	to = to[:len(payload)]
	shm.Deposit(to, payload)
	h.Sum = wire.Sum(0, to)
	return to
}

// heads are for links that write several long frames in one call; one that is idle
// holds none.
var heads = sync.Pool{New: func() any { return new([mostParts - 1][wire.HeaderSize + small]byte) }}

// put makes the header of a frame that is the next one to be written.
func (t *transmitter) put(h *wire.Header, b []byte) {
	h.Put(b, t.number)
	t.number++
}

// add puts a frame behind those that are about to be written, and says whether
// another one may come behind it. Long payloads stay where they are; a call that
// writes several is faster than as many calls.
func (t *transmitter) add(h *wire.Header, payload []byte) (more bool) {
	t.begun++
	size := wire.HeaderSize + len(payload)
	whole := len(payload) <= small
	if !whole {
		size = wire.HeaderSize
	} else if t.toPad > 0 {
		t.toPad--
	}
	if t.count == 0 || t.parts[t.count-1].seq != 0 {
		t.count++
	}
	p := &t.parts[t.count-1]
	at := len(p.head)
	switch {
	case t.count > 1:
		if t.heads == nil {
			t.heads = heads.Get().(*[mostParts - 1][wire.HeaderSize + small]byte)
		}
		p.head = t.heads[t.count-2][:size]
	case at == 0:
		p.head = t.buf[:size]
	case at+size <= cap(p.head):
		p.head = p.head[:at+size]
	default: // which happens with buf only
		t.big = buffers.Get().(*[bufferSize]byte)
		p.head = t.big[:copy(t.big[:], p.head)+size]
	}
	if t.check {
		payload = t.summed(h, p.head[at+wire.HeaderSize:], payload)
	}
	t.put(h, p.head[at:])
	if !whole {
		p.pay, p.seq = payload, h.Seq
		if t.load.near && h.Type == wire.Data {
			t.bulk.Store(h.Seq)
		}
		return !t.check && t.load.more(t.count, len(payload))
	}
	shm.Deposit(p.head[at+wire.HeaderSize:], payload) // of an answer it is memory that others write to
	return t.count == 1 && (t.big == nil || len(p.head)+len(t.buf) <= len(t.big))
}

// send makes one call. It returns how much the socket took.
func (t *transmitter) send(fd int) (n int, err error) {
	p := &t.parts[t.first]
	switch {
	case t.cipher != nil:
		n, err = t.encrypt(fd)
	case t.count-t.first > 1:
		var pieces [unix.MaxPieces][]byte
		k := 0
		for _, p := range t.parts[t.first:t.count] {
			pieces[k], pieces[k+1] = p.head, p.pay
			k += 2
		}
		n, err = t.io.SendPieces(fd, pieces[:k])
	case len(p.head) > 0:
		n, err = t.io.Send(fd, p.head, p.pay)
	default:
		n, err = t.io.Send(fd, p.pay, nil)
	}
	if err == nil {
		t.took(n)
		if t.turn > 0 {
			if t.turn -= n; t.turn <= 0 {
				t.turn = -1
			}
		}
	}
	return n, err
}

// took notes that the socket has taken n bytes more.
func (t *transmitter) took(n int) {
	for ; t.first < t.count; t.first++ {
		p := &t.parts[t.first]
		k := min(n, len(p.head))
		p.head, n = p.head[k:], n-k
		k = min(n, len(p.pay))
		p.pay, n = p.pay[k:], n-k
		if len(p.head)+len(p.pay) > 0 {
			return
		}
		*p = part{}
	}
	t.load.gone()
	t.first, t.count = 0, 0
	t.giveBack()
	t.gone = t.begun
	if t.loan.Load() != 0 {
		t.loan.Store(0)
	}
}

// calm says that nothing is begun or queued here.
func (t *transmitter) calm() bool {
	return t.gone == t.begun && len(t.ctl) == 0 && !t.bell && !t.held && len(t.grants) == 0 && t.toPad != 0
}

// left is how many bytes are not written.
func (t *transmitter) left() (n int) {
	for _, p := range t.parts[t.first:t.count] {
		n += len(p.head) + len(p.pay)
	}
	return n
}

// lent is the first message of which there is anything left, [math.MaxUint64] for none.
func (t *transmitter) lent() uint64 {
	for _, p := range t.parts[t.first:t.count] {
		if p.seq != 0 {
			return p.seq
		}
	}
	return math.MaxUint64
}

// keep copies what is left of payloads, whose memory is not the link's any more. That of an answer is exported memory,
// into which what comes over other links is stored meanwhile, as it is while the kernel takes it. It is asked for at the end of
// each import of a link, and copies only what it has not copied yet.
func (t *transmitter) keep() {
	for i := range t.parts[t.first:t.count] {
		p := &t.parts[t.first+i]
		if p.kept || len(p.pay) == 0 {
			continue
		}
		own := make([]byte, len(p.pay))
		_ = shm.TryDeposit(own, p.pay) // of what cannot be read the message is an abort, or its export has ended
		p.pay, p.kept = own, true
	}
}

// flush writes what the socket takes of the frame under way.
func (s *stream) flush() (done bool) {
	t := &s.tx
	for t.gone < t.begun {
		if s.torn.Load() {
			return false
		}
		if t.turn < 0 { // and there may be room
			t.stuck.Store(true)
			return false
		}
		n, err := t.send(s.fd)
		if err != nil {
			if unix.Faulted(err) { // memory that could be read a moment ago
				s.h.blame()
			}
			s.lose(s.broke(err))
			return false
		}
		if n == 0 {
			s.stick()
			return false
		}
	}
	return true
}

// burst bounds how many long frames, of a chunk each, one pump writes before other links get a turn. A call counts as fewestParts of them at least.
const burst = 8 * fewestParts

// pump writes all that goes before a sender's next frame, and says whether
// that is done.
func (s *stream) pump() (clear bool) {
	if s.torn.Load() {
		return false
	}
	for spent := 0; s.flush(); spent += fewestParts {
		if spent+s.tx.load.parts() > burst {
			s.stick() // raises an event at once if there is room
			return false
		}
		if len(s.tx.grants) > 0 && s.fd >= 0 {
			if !s.grant() {
				return false
			}
			continue
		}
		if !s.frames() && len(s.tx.ctl) == 0 { // what is there is asked for by next
			return !s.tx.held
		}
		spent += max(s.tx.load.weight(s.tx.count)-fewestParts, 0)
	}
	return false
}

// frames begins as many frames as one call can write, and says whether there are any.
func (s *stream) frames() (any bool) {
	t := &s.tx
	if t.toPad == 0 {
		t.pad()
		return true
	}
	for more := true; more; any = true {
		switch {
		case len(t.ctl) > 0:
			h := t.ctl[0]
			t.ctl = append(t.ctl[:0], t.ctl[1:]...)
			more = t.add(&h, nil)
		case t.bell:
			t.bell = false
			more = t.add(&wire.Header{Type: wire.Bell}, nil)
		default:
			pay, ok := s.h.next(&t.own)
			if !ok {
				return any
			}
			more = t.add(&t.own, pay)
		}
	}
	return any
}

// control queues a frame that goes before others, and sends what can be sent.
func (s *stream) control(h wire.Header) {
	s.tmu.Lock()
	s.tx.ctl = append(s.tx.ctl, h)
	s.pump()
	s.tmu.Unlock()
}

// push sends what this side owes.
func (s *stream) push() {
	s.tmu.Lock()
	s.pump()
	s.tmu.Unlock()
}

// ring tells the peer process to look at the shared words and the ring.
func (s *stream) ring() {
	s.tmu.Lock()
	if s.tx.gone < s.tx.begun || len(s.tx.ctl) > 0 || len(s.tx.grants) > 0 {
		s.tx.bell = true // goes with the frame under way
	} else if s.fd >= 0 {
		h := wire.Header{Type: wire.Bell}
		t := &s.tx
		bell := t.buf[:wire.HeaderSize]
		h.Put(bell, t.number)
		if n, err := t.io.Send(s.fd, bell, nil); err != nil {
			s.fail(s.broke(err))
		} else if n == 0 {
			t.bell = true // no room: it goes when there is
			s.stick()
		} else if t.number++; n < len(bell) {
			t.parts[0].head, t.count, t.begun = bell[n:], 1, t.begun+1
			s.stick()
		}
	}
	s.tmu.Unlock()
}

package vrpc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/xdr"
)

// handoffDelay is how long a procedure runs on the goroutine that takes a connection's calls before
// another one takes the next, or twice that. A goroutine for each call would cost short ones more
// than they take, and so would a timer that is set for each. Each tick wakes a thread, which takes
// its processor from another one: after calmTicks ticks in which no call was found running, the
// next ones take twice as long.
const (
	handoffDelay    = 200 * time.Microsecond
	maxHandoffDelay = 16 * handoffDelay
	calmTicks       = 16
)

// keptReply is the capacity beyond which a reader's memory for replies is the collector's again.
const keptReply = 256 << 10

// remote is a server's connection by remote memory.
type remote struct {
	s         *Server
	from      caller
	acceptCtx context.Context //nolint:containedctx // calls, as long as the server and the connection do
	end       context.CancelFunc

	in   *inbox
	next uint64 // entries taken; the reader's

	r     *vmmc.Import // the client's
	out   layout
	calls sync.WaitGroup
	// inFlight is how many calls are not answered.
	inFlight atomic.Int32
	replies
}

// remoteAddr is a process.
type remoteAddr vmmc.ProcessID

// Network is "vmmc".
func (remoteAddr) Network() string { return "vmmc" }

func (a remoteAddr) String() string { return vmmc.ProcessID(a).String() }

func newRemote(s *Server, r *vmmc.Import, out layout, in *inbox) *remote {
	c := &remote{s: s, in: in, r: r, out: out, replies: replies{area: newArea(out.area)}}
	ctx, end := context.WithCancel(s.ctx)
	taking, stop := context.WithCancel(s.acceptCtx)
	c.from, c.acceptCtx = caller{base: ctx, addr: remoteAddr(r.Exporter())}, taking
	c.end = func() {
		end()
		stop()
	}
	return c
}

// Close ends the connection; serve returns then.
func (c *remote) Close() error {
	c.end()
	return nil
}

// serve answers calls until the connection ends or the server takes no more, and returns when none
// runs any more.
func (c *remote) serve() {
	c.calls.Go(c.read)
	c.calls.Wait()
	if c.acceptCtx.Err() != nil && c.from.base.Err() == nil {
		// The end of the buffers would overtake replies, which go by another connection.
		ctx, stop := context.WithTimeout(c.from.base, meetTime)
		_ = c.r.Fence(ctx)
		stop()
	}
	c.end()
}

// The states of a reader's call.
const (
	reading = iota // there is none
	running
	handedOver // another goroutine reads
)

// reader takes the connection's calls, until one takes long.
type reader struct {
	c            *remote
	state        atomic.Int32
	handedOff    chan struct{} // closed when another one reads
	handoffTimer *time.Timer   // calls tick while calls come; nil: they run in their order
	callsStarted atomic.Uint32 // calls
	callsSeen    atomic.Uint32 // of these, by the last tick
	timerStopped atomic.Bool   // no tick will come
	tickInterval atomic.Int64  // from tick to tick
	ticks        int           // since pause was changed; tick's
	call         [inline]byte

	work      work
	e         entry // of the call
	err       error // of sending its reply
	term      term  // for that
	reply     [entrySize]byte
	longReply []byte // in place of reply, once one was longer
	parts     [][]byte
	words     [][]byte
}

func (c *remote) read() {
	r := &reader{c: c, handedOff: make(chan struct{}), term: term{base: c.from.base, least: c.s.write}}
	r.work.spare.owned = true
	defer r.term.end()
	r.tickInterval.Store(int64(handoffDelay))
	if !c.s.ordered {
		r.timerStopped.Store(true)
		r.handoffTimer = time.AfterFunc(time.Hour, r.tick)
		defer r.handoffTimer.Stop()
	}
	for {
		switch more, err := r.readCall(); {
		case err != nil:
			if c.acceptCtx.Err() == nil {
				c.s.logger.Debug("vrpc: connection has ended", "peer", c.r.Exporter(), "err", err)
			}
			if c.s.acceptCtx.Err() == nil {
				c.end() // of those that run no reply is wanted any more
			}
			return
		case !more:
			return
		}
	}
}

// tick has another goroutine read if the call that runs did so at the last tick.
func (r *reader) tick() {
	n := r.callsStarted.Load()
	if n == r.callsSeen.Load() {
		if r.state.CompareAndSwap(running, handedOver) {
			r.c.calls.Go(r.c.read) // this reader has not ended, nor has its connection
			close(r.handedOff)
			return
		}
		r.timerStopped.Store(true)
		if r.callsStarted.Load() == n || !r.timerStopped.CompareAndSwap(true, false) {
			return // the next call has it tick
		}
	}
	r.callsSeen.Store(n)
	pause := r.tickInterval.Load()
	if r.ticks++; r.ticks == calmTicks {
		r.ticks = 0
		pause = min(2*pause, int64(maxHandoffDelay))
		r.tickInterval.Store(pause)
	}
	r.handoffTimer.Reset(time.Duration(pause))
}

// readCall takes an entry and runs its call. It returns false if others read now.
func (r *reader) readCall() (more bool, err error) {
	c := r.c
	if err := c.acceptCtx.Err(); err != nil { // WaitWord prefers a word that is there
		return false, err
	}
	i := int(c.next % uint64(c.in.entries))
	number, old := uint32(c.next+1), uint32(0)
	if c.next >= uint64(c.in.entries) {
		old = number - uint32(c.in.entries)
	}
	v, err := c.r.WaitWord(c.acceptCtx, c.in.words[i], old)
	if err != nil {
		return false, err
	}
	e, place := &r.e, c.in.place(i)
	e.read(place, v)
	b, ok := c.in.message(e, place)
	if v != number || !ok || e.slot >= uint32(c.in.entries) || len(b) < rpcmsg.LeastCall {
		return false, errEntry
	}
	if e.where == here {
		b = r.call[:copy(r.call[:], b)] // the place is the client's again when a later call is answered
	}
	c.next++
	if c.inFlight.Add(1) > int32(c.in.entries) {
		return false, errEntry // it did not wait for its replies
	}
	return r.run(b)
}

// run runs a call and sends its reply.
func (r *reader) run(b []byte) (more bool, err error) {
	c := r.c
	if !c.s.begin() {
		return false, ErrClosed
	}
	if r.handoffTimer != nil {
		r.state.Store(running)
		r.callsStarted.Add(1) // before the look, see tick
		if r.timerStopped.Load() && r.timerStopped.CompareAndSwap(true, false) {
			r.handoffTimer.Reset(time.Duration(r.tickInterval.Load()))
		}
	}
	r.work.answer(c.s, &c.from, b, r)
	if err = r.err; r.handoffTimer == nil {
		return err == nil, err
	}
	if !r.state.CompareAndSwap(running, reading) {
		<-r.handedOff // the connection ends when there is no reader
		return false, err
	}
	return err == nil, err
}

// begin is [replier]'s.
func (r *reader) begin(e *xdr.Encoder) {
	if r.longReply != nil {
		e.Reset(r.longReply[:0])
	} else {
		e.Reset(r.reply[:0:inline])
	}
	e.Gather(fewest)
}

// end gives the procedure's place back and then sends the reply: a client that does not read delays
// only itself.
func (r *reader) end(e *xdr.Encoder) {
	r.c.s.done()
	if e == nil {
		r.err = r.send(nil, 0) // the client waits for its slot all the same
		return
	}
	r.parts = e.Pieces(r.parts[:0])
	r.err = r.send(r.parts, e.Size())
	clear(r.parts)
	if b := e.Bytes(); cap(b) > inline && cap(b) <= keptReply {
		r.longReply = b
	}
}

// send sends a reply of so many bytes to the slot of its call.
func (r *reader) send(parts [][]byte, size int) error {
	c := r.c
	if err := c.from.base.Err(); err != nil {
		return err // a reply would only say that the procedure was told to end
	}
	ctx := r.term.context()
	if size > inline && units(size) > len(c.area.used) {
		parts[0] = tooLong(parts[0])
		parts, size = parts[:1], len(parts[0])
	}
	a := entry{length: uint32(size), where: here, number: r.e.number}
	b := r.reply[:0]
	switch {
	case size > inline:
		where, err := r.put(ctx, parts, size)
		if err != nil {
			return err
		}
		a.where = uint32(where)
	case size > 0 && &parts[0][0] == &b[:1][0]: // it was encoded there
		b = b[:size]
	case size > 0:
		b = append(b, parts[0]...)
	}
	b = a.append(b)
	c.inFlight.Add(-1)
	return c.r.Send(ctx, b, c.out.at(int(r.e.slot))+entrySize-len(b))
}

// put sends a reply to the client's area. A client that leaves its replies there is disconnected.
func (r *reader) put(ctx context.Context, parts [][]byte, size int) (where int, err error) {
	c := r.c
	pad := c.area.pad(parts, size)
	if where, err = c.hold(ctx, &r.e, pad+size); err != nil {
		return 0, err
	}
	where += pad
	r.words = whole(r.words[:0], parts)
	err = c.r.SendV(ctx, r.words, c.out.data()+where)
	clear(r.words)
	return where, err
}

// replies are those that lie in the client's area.
type replies struct {
	area *area
	mu   sync.Mutex
	held []heldReply // oldest first
}

// heldReply is one that the client is not known to be done with.
type heldReply struct {
	slot, number uint32
	where, size  int
}

// hold takes a part of the area, and waits for the oldest reply there to be done with, as long as
// there is no room.
func (c *remote) hold(ctx context.Context, e *entry, n int) (where int, err error) {
	for {
		c.mu.Lock()
		c.reclaim(e.slot)
		where, full := c.area.tryAlloc(units(n))
		if full == nil {
			c.held = append(c.held, heldReply{e.slot, e.number, where, n})
			c.mu.Unlock()
			return where, nil
		}
		oldest := c.held[0]
		c.mu.Unlock()
		word := c.in.heads[oldest.slot]
		if v := word.Load(); v != oldest.number {
			if _, err := c.r.WaitWord(ctx, word, v); err != nil {
				return 0, err
			}
		}
	}
}

// reclaim takes back what the client is done with: also what a slot had that it uses again.
func (c *remote) reclaim(slot uint32) {
	c.held = slices.DeleteFunc(c.held, func(h heldReply) bool {
		done := h.slot == slot || c.in.heads[h.slot].Load() == h.number
		return done && c.area.free(h.where, h.size)
	})
}

package link

import (
	"context"
	"runtime"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// inline is the longest asynchronous message that is copied at once. leftMost is the longest that is left to who waits, and the most
// that is copied in one wait for something else: with more a goroutine may as well be at it meanwhile.
const (
	inline   = 64 << 10
	leftMost = 4 << 20
)

// replica is a copy between the caller's memory and the exporter's that was put off. It is made in pieces, of which each may
// be another goroutine's, who has the backlog's turn.
type replica struct {
	m      *Mapped
	off    int
	mem    []byte // the caller's
	get    bool   // into it
	notify bool   // the exporter, with a credit that was taken

	there int    // how much of it is
	last  uint32 // of a get: its last word, which is read before all others
}

// SendAsync copies a short message at once, unless something that is still
// under way must come first.
func (m *Mapped) SendAsync(ctx context.Context, off int, src []byte, notify bool) (Request, error) {
	o := m.out
	if notify {
		if err := o.credit(ctx, m.Ended); err != nil {
			return Request{}, err
		}
	}
	if len(src) <= inline && m.idle() {
		err := m.putAtOnce(ctx, off, src, notify)
		if err != errWaits { //nolint:errorlint // nothing wraps it
			return Request{o: o}, err
		}
	}
	r, err := o.postpone(ctx, m.replica(replica{off: off, mem: src, notify: notify}))
	if err != nil {
		o.uncredit(notify)
	}
	return r, err
}

// putAtOnce sends a short message. It does nothing, and fails with errWaits, where
// the message has to wait for another one or for the exporter.
func (m *Mapped) putAtOnce(ctx context.Context, off int, src []byte, notify bool) error {
	switch {
	case m.Claims != nil:
		t, err := m.redirectedAtOnce(ctx, off, src)
		switch {
		case err == nil && notify:
			m.tell(off+len(src)-shm.WordSize, t.word, t.redir)
		case err != errWaits: //nolint:errorlint // nothing wraps it
			m.out.uncredit(notify && err != nil)
		}
		return err
	case notify:
		return m.notify(ctx, off, src, nil)
	}
	return m.send(ctx, off, src, nil)
}

// put sends a message to a redirectable export in its turn, out of memory that was
// lent for it.
func (m *Mapped) put(ctx context.Context, off int, src []byte, notify bool) error {
	if notify {
		return m.notifyRedirected(ctx, off, src, nil, true)
	}
	_, err := m.redirected(ctx, off, src, nil, false, true)
	return err
}

// GetAsync copies at once what is short and need not wait.
func (m *Mapped) GetAsync(ctx context.Context, off int, dst []byte) (Request, error) {
	o := m.out
	if len(dst) <= inline && m.idle() {
		return Request{o: o}, m.get(ctx, off, dst, false)
	}
	return o.postpone(ctx, m.replica(replica{off: off, mem: dst, get: true}))
}

func (m *Mapped) replica(c replica) *deferred {
	c.m = m
	return &deferred{copy: c, slow: m.Claims != nil || len(c.mem) > leftMost || !m.out.still()}
}

// free says whether an operation would have to wait for none before it.
func (m *Mapped) free() bool {
	return !m.out.later.busy() && m.out.seq.Load() == m.out.acked.Load()
}

// idle says whether a request that is over at once would be so in its turn.
func (m *Mapped) idle() bool { return !m.out.later.busy() && m.out.still() }

// still says that nothing of the stream is under way.
func (o *Out) still() bool { return o.seq.Load() == o.acked.Load() && o.reads.Load() == 0 }

// ready says whether the next piece has to wait for nothing. What comes on the stream after this look is of another goroutine's
// call, between which and this one there is no order.
func (c *replica) ready() bool { return c.there > 0 || c.m.out.still() }

// run is in a goroutine of the backlog's own.
func (c *replica) run(ctx context.Context) (err error) {
	m, o := c.m, c.m.out
	if c.there == 0 {
		if err = o.allAnswered(ctx, o.seq.Load()+1); err == nil {
			err = m.order(ctx)
		}
		switch {
		case err != nil:
			o.uncredit(c.notify)
			return err
		case m.Claims != nil && !c.get:
			return m.put(ctx, c.off, c.mem, c.notify)
		}
	}
	for over := false; !over; {
		over, err = c.step()
	}
	return err
}

// step makes the next piece, and says whether the copy is over. It waits for nothing: it is run, too, for who waits for something else, and
// may be in the middle of a message.
func (c *replica) step() (over bool, err error) {
	n := min(len(c.mem)-c.there, shm.Piece)
	over = c.there+n == len(c.mem)
	switch err = c.m.check(); {
	case err != nil:
		over = true
		if c.there > 0 && !c.get {
			err = unknown(err)
		}
	default:
		// The memory is lent, and this is not the goroutine of the lender.
		if gerr := shm.Guard(func() {
			if c.get {
				err = c.fetch(n, over)
			} else {
				err = c.deposit(n, over)
			}
		}); gerr != nil {
			over, err = true, gerr
		}
	}
	if err != nil {
		c.m.out.uncredit(c.notify)
	}
	c.there += n
	return over, err
}

// deposit sends n bytes, and with the last ones what is to come after all.
func (c *replica) deposit(n int, last bool) error {
	m := c.m
	if c.there == 0 && invariant.Enabled {
		m.traceSend(c.off, c.mem, nil)
	}
	dst, src := m.mem[c.off+c.there:][:n], c.mem[c.there:][:n]
	if !last {
		shm.Copy(dst, src)
		return nil
	}
	shm.Put(dst, src)
	if err := m.end(c.off, len(c.mem)); err != nil {
		return err
	}
	if c.notify {
		m.tell(c.off+len(c.mem)-shm.WordSize, lastWord(c.mem), 0)
	}
	return nil
}

// fetch gets n bytes. Who finds a flag in the last word finds all that was stored before it.
func (c *replica) fetch(n int, last bool) error {
	m := c.m
	if c.there == 0 {
		if invariant.Enabled {
			m.trace("mapped get", c.off, len(c.mem))
		}
		c.last = shm.Word(m.mem, c.off+len(c.mem)-shm.WordSize).Load()
	}
	dst, src := c.mem[c.there:][:n], m.mem[c.off+c.there:][:n]
	if !last {
		shm.Copy(dst, src)
		runtime.KeepAlive(m)
		return nil
	}
	shm.Copy(dst[:n-shm.WordSize], src[:n-shm.WordSize])
	shm.SetLastWord(dst, c.last)
	if runtime.GOARCH != "amd64" {
		m.fence.Add(1) // as in Get
	}
	err := m.check()
	m.count.Add2(page.Gets, 1, page.GetBytes, uint64(len(c.mem)))
	runtime.KeepAlive(m)
	return err
}

package link

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/invariant"
)

// inline is the longest asynchronous message that is copied at once, and leftMost the longest that is left to who waits: a longer one
// takes so long that a goroutine may as well be at it meanwhile, and that who waits should be able to stop waiting.
const (
	inline   = 64 << 10
	leftMost = 4 << 20
)

// replica is a copy between the caller's memory and the exporter's that was put off.
type replica struct {
	m      *Mapped
	off    int
	mem    []byte // the caller's
	get    bool   // into it
	notify bool   // the exporter, with a credit that was taken
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
		return Request{o: o}, m.put(ctx, off, src, notify)
	}
	r, err := o.postpone(ctx, m.replica(replica{off: off, mem: src, notify: notify}))
	if err != nil {
		o.uncredit(notify)
	}
	return r, err
}

func (m *Mapped) put(ctx context.Context, off int, src []byte, notify bool) error {
	if notify {
		return m.notify(ctx, off, src, nil)
	}
	_, err := m.send(ctx, off, src, nil)
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

// still says that nothing of the stream is under way.
func (o *Out) still() bool { return o.seq.Load() == o.acked.Load() && o.reads.Load() == 0 }

// free says whether an operation would have to wait for none before it.
func (m *Mapped) free() bool {
	return !m.out.later.busy() && m.out.seq.Load() == m.out.acked.Load()
}

// idle says whether a request that is over at once would be so in its turn.
func (m *Mapped) idle() bool { return m.free() && m.out.reads.Load() == 0 }

// run is in a goroutine of the backlog's own.
func (c *replica) run(ctx context.Context) error {
	m, o := c.m, c.m.out
	if err := o.allAnswered(ctx, o.seq.Load()+1); err != nil {
		o.uncredit(c.notify)
		return err
	}
	if c.get {
		return m.get(ctx, c.off, c.mem, false)
	}
	return m.put(ctx, c.off, c.mem, c.notify)
}

// now is run for who waits for something else, and may be in the middle of a message: it does not wait, and says whether it
// need not have. What comes on the stream after its look is of another goroutine's call, between which and this one there is no order.
func (c *replica) now() (done bool, err error) {
	m, o := c.m, c.m.out
	if !o.still() {
		return false, nil
	}
	if c.get {
		if err := m.check(); err != nil {
			return true, err
		}
		return true, m.fetch(c.off, c.mem, false)
	}
	if invariant.Enabled {
		m.traceSend(c.off, c.mem, nil)
	}
	if err = m.check(); err == nil {
		err = m.deposit(context.Background(), c.off, c.mem, nil)
	}
	switch {
	case err != nil:
		o.uncredit(c.notify)
	case c.notify:
		m.tell(c.off+len(c.mem)-4, lastWord(c.mem), 0)
	}
	return true, err
}

package mpi

import (
	"context"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// longMessage is from how many bytes on a collective uses the algorithm that sends the fewest
// bytes, rather than the one with the fewest rounds.
const longMessage = 16 << 10

// plan is a collective whose arguments have been checked. Each run reads the buffers anew.
type plan struct {
	c    *Comm
	call string
	run  func(ctx context.Context, r *round) error
	err  error // why there is no plan
	// inter reports whether it is one of intercommunicators.
	inter bool
}

// do runs the plan, and returns when it is over.
func (p plan) do(ctx context.Context) error {
	if p.err != nil {
		return p.c.raise(p.err)
	}
	if ctx == nil {
		return p.c.raise(fail(p.call, "ctx", ErrArg, "the context is nil"))
	}
	return p.c.raise(p.execute(ctx, p.c.begin(p.call)))
}

// execute runs the plan. The only rank of a communicator sends no message that fails if it is revoked.
func (p plan) execute(ctx context.Context, r *round) error {
	usable := p.c.intra
	if p.inter {
		usable = p.c.live
	}
	if err := usable(p.call); err != nil {
		return err
	}
	if len(p.c.ranks) == 1 {
		if err := p.c.j.e.Usable(p.c.id); err != nil {
			return wrap(p.call, err)
		}
	}
	return p.run(ctx, r)
}

// round is a collective that is under way: its messages have a tag of their own.
type round struct {
	c    *Comm
	call string
	tag  int
}

// begin begins a collective.
func (c *Comm) begin(call string) *round {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	return &round{c, call, int(c.seq & MaxTag)}
}

func (r *round) target(to int) engine.Target {
	c := r.c
	return engine.Target{
		Context: c.id + 1, Rank: c.peers[to], Source: c.rank, Tag: r.tag, Group: c.all, Collective: true,
	}
}

func (r *round) source(from int) engine.Source {
	c := r.c
	return engine.Source{
		Context: c.id + 1, Rank: c.peers[from], Source: from, Tag: r.tag, Group: c.all, Collective: true,
	}
}

func (r *round) isend(buf []byte, to int) (*engine.Request, error) {
	t := r.target(to)
	q, err := r.c.j.e.Isend(&t, buf, engine.Standard)
	return q, wrap(r.call, err)
}

func (r *round) send(ctx context.Context, buf []byte, to int) error {
	t := r.target(to)
	return wrap(r.call, r.c.j.e.Send(ctx, &t, buf, engine.Standard))
}

// received checks what a receive was over with.
func (r *round) received(st engine.Status, err error, want, from int) error {
	switch {
	case err != nil:
		return wrap(r.call, err)
	case st.Bytes != want:
		return fail(r.call, "buf", ErrCount, "rank %d has given %d bytes, and this rank %d", from, st.Bytes, want)
	}
	return nil
}

func (r *round) recv(ctx context.Context, buf []byte, from int) error {
	s := r.source(from)
	st, err := r.c.j.e.Recv(ctx, &s, buf)
	return r.received(st, err, len(buf), from)
}

// exchange sends to one rank and receives from another one.
func (r *round) exchange(ctx context.Context, out []byte, to int, in []byte, from int) error {
	q, err := r.isend(out, to)
	if err != nil {
		return err
	}
	defer q.Abandon() // out is the caller's after an error too
	if err := r.recv(ctx, in, from); err != nil {
		return err
	}
	_, err = q.Complete(ctx)
	return wrap(r.call, err)
}

// message is one of several that are under way at once.
type message struct {
	q    *engine.Request
	from int // a rank, or -1 for a send
	want int // bytes
}

// messages are sends and receives of a round that are under way at once.
type messages struct {
	r   *round
	all []message
}

func (m *messages) send(buf []byte, to int) error {
	q, err := m.r.isend(buf, to)
	if err == nil {
		m.all = append(m.all, message{q, -1, 0})
	}
	return err
}

func (m *messages) recv(buf []byte, from int) error {
	s := m.r.source(from)
	q, err := m.r.c.j.e.Irecv(&s, buf)
	if err != nil {
		return wrap(m.r.call, err)
	}
	m.all = append(m.all, message{q, from, len(buf)})
	return nil
}

// wait waits until all are over, or one has failed.
func (m *messages) wait(ctx context.Context) error {
	for _, one := range m.all {
		st, err := one.q.Complete(ctx)
		if one.from < 0 {
			err = wrap(m.r.call, err)
		} else {
			err = m.r.received(st, err, one.want, one.from)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// abandon gives up what is not over: no buffer is used any more.
func (m *messages) abandon() {
	for _, one := range m.all {
		one.q.Abandon()
	}
}

func (c *Comm) checkRoot(call string, root int) error {
	if root < 0 || root >= len(c.ranks) {
		return fail(call, "root", ErrRoot, "it is %d, and %s has the ranks 0 to %d", root, c.Name(), len(c.ranks)-1)
	}
	return nil
}

// Barrier returns when all ranks have called it (MPI_Barrier, chapter Collective Communication):
// within each node by a tree, and between nodes by dissemination, in ⌈log2⌉ rounds each.
//
// A collective whose context ends, or that fails, is over at this rank alone, and does not use its
// buffers any more. The communicator's other collectives have no meaning then. If a rank is gone,
// all collectives of its communicators fail with [ErrProcFailed], at all ranks.
//
// Experimental: it may change in any release.
func (c *Comm) Barrier(ctx context.Context) error { return barrierPlan(c, "MPI_Barrier").do(ctx) }

func barrierPlan(c *Comm, call string) plan {
	if c.Inter() {
		return interBarrier(c, call)
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		l := c.layout()
		local := l.local(c.rank)
		if err := local.up(ctx, r, nothing, kept); err != nil {
			return err
		}
		if local.parent < 0 {
			leaders, at := l.leaders, l.node[c.rank]
			n := len(leaders)
			for d := 1; d < n; d *= 2 {
				if err := r.exchange(ctx, nil, leaders[(at+d)%n], nil, leaders[(at-d+n)%n]); err != nil {
					return err
				}
			}
		}
		return local.down(ctx, r, nothing)
	}}
}

// Bcast gives all ranks the values of one (MPI_Bcast, chapter Collective Communication), by a
// binomial tree of the nodes and one in each of them. All give as many.
//
// Experimental: it may change in any release.
func Bcast[T any](ctx context.Context, c *Comm, buf []T, root int) error {
	return bcastPlan(c, "MPI_Bcast", buf, root).do(ctx)
}

func bcastPlan[T any](c *Comm, call string, buf []T, root int) plan {
	if c.Inter() {
		return interBcast(c, call, buf, root)
	}
	b, err := bytesOf(call, buf)
	if err != nil {
		return plan{c: c, err: err}
	}
	if err := c.checkRoot(call, root); err != nil {
		return plan{c: c, err: err}
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		t := c.layout().tree(root, c.rank)
		return t.down(ctx, r, func(branch) []byte { return b })
	}}
}

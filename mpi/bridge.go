package mpi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	engine "github.com/vmmc-go/vmmc/internal/mpi"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// A connection between two jobs is a bridge: a job of its own, whose ranks are those of a communicator
// of each, in a group that both agree on. It has an engine of its own. So a death on one side is an error
// of the bridge's communicators, and the other job's engine never learns of it; and the two jobs have
// nothing in common when the bridge has ended.

// bridges is what a job has to do with other jobs.
type bridges struct {
	of     *job  // of a bridge: the job of this rank
	parent *Comm // with the job that has spawned this one; set by Init

	bmu sync.Mutex
	// Guarded by bmu.
	lone  *vmmc.Process     // of a job that needs no node otherwise
	live  map[*job]struct{} // bridges that have not ended
	ports map[string]*port
	names map[string]*publication
}

// home is the job that Init has made.
func (j *job) home() *job {
	if j.of != nil {
		return j.of
	}
	return j
}

// process is the process of this rank. A rank that was started alone joins its machine's node.
func (j *job) process(ctx context.Context) (*vmmc.Process, error) {
	if p := j.e.Process(); p != nil {
		return p, nil
	}
	j.bmu.Lock()
	defer j.bmu.Unlock()
	if j.lone == nil {
		p, err := vmmc.Open(ctx)
		if err != nil {
			return nil, &Error{Class: ErrOther, Err: errors.Join(
				errors.New("other jobs are reached by this machine's node: start vmmcd, or this program by vmmc mpirun"), err)}
		}
		j.lone = p
	}
	return j.lone, nil
}

// leaveNode ends what process has opened, and the ports and names of this rank.
func (j *job) leaveNode() error {
	j.bmu.Lock()
	ports, names, lone := j.ports, j.names, j.lone
	j.ports, j.names, j.lone = nil, nil, nil
	j.bmu.Unlock()
	var errs []error
	for _, pt := range ports {
		errs = append(errs, pt.close())
	}
	for _, n := range names {
		errs = append(errs, n.close())
	}
	if lone != nil {
		errs = append(errs, lone.Close())
	}
	return errors.Join(errs...)
}

// nodesOf lists the nodes of a communicator's ranks.
func (c *Comm) nodesOf(p *vmmc.Process) nodeproto.Group {
	var g nodeproto.Group
	for _, rank := range c.ranks {
		node := c.j.e.Node(rank)
		if rank == c.j.e.Rank() {
			node = p.Node()
		}
		g.Append(node.String())
	}
	return g
}

// newGroupID names a group that no other one is named like.
func newGroupID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// bridge joins the ranks of this communicator and those of another job. text is the group of both, in
// which this communicator's ranks begin with first. It is a collective of both.
func (c *Comm) bridge(ctx context.Context, call, text string, first int, name string) (*Comm, error) {
	home := c.j.home()
	p, err := home.process(ctx)
	if err != nil {
		return nil, wrap(call, err)
	}
	g, err := group.JoinAs(ctx, p, text, first+c.rank)
	if err != nil {
		return nil, wrap(call, err)
	}
	b := &job{g: g, self: home.self, unmapped: home.unmapped, module: home.module, bridges: bridges{of: home}}
	if b.e, err = engine.Start(ctx, p, g, engine.Options{Module: home.module}); err != nil {
		return nil, wrap(call, errors.Join(err, leaveSoon(g)))
	}
	ranks, remote := make([]int, len(c.ranks)), make([]int, 0, g.Size())
	for i := range ranks {
		ranks[i] = first + i
	}
	for rank := range g.Size() {
		if rank < first || rank >= first+len(ranks) {
			remote = append(remote, rank)
		}
	}
	b.world = newInter(b, 0, c.rank, ranks, remote, first == 0, name)
	home.bmu.Lock()
	defer home.bmu.Unlock()
	if home.live == nil {
		home.live = map[*job]struct{}{}
	}
	home.live[b] = struct{}{}
	return b.world.like(c), nil
}

// leaveSoon leaves a group whose other members may never join.
func leaveSoon(g *group.Group) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	err := g.Leave(ctx)
	if ctx.Err() != nil { // Leave with an ended context would do no more
		return nil
	}
	return err
}

// endBridge ends a bridge when all its ranks that live have called it. After an error of the context
// it is called again.
func (j *job) endBridge(ctx context.Context, b *job) error {
	var err error
	if !b.over.Load() {
		err = b.e.Finish(ctx, b.endTogether)
		if canceled := (*engine.Error)(nil); errors.As(err, &canceled) && canceled.Class == engine.ErrCanceled {
			return err
		}
		b.over.Store(true)
	}
	left := b.g.Leave(ctx)
	if left != nil && ctx.Err() != nil {
		return errors.Join(err, left)
	}
	j.bmu.Lock()
	defer j.bmu.Unlock()
	delete(j.live, b)
	return errors.Join(err, left)
}

// abandon ends the engines of a job that Init has not finished, and of its bridges. It waits for no
// other rank.
func (j *job) abandon() error {
	j.bmu.Lock()
	live := j.live
	j.live = nil
	j.bmu.Unlock()
	var errs []error
	for b := range live {
		errs = append(errs, b.e.Abandon(), leaveSoon(b.g))
	}
	return errors.Join(append(errs, j.e.Abandon())...)
}

// endBridges ends all bridges. A rank of another job that is gone is no failure of this one.
func (j *job) endBridges(ctx context.Context) error {
	j.bmu.Lock()
	var open []*job
	for b := range j.live {
		open = append(open, b)
	}
	j.bmu.Unlock()
	errs := make([]error, len(open))
	var wg sync.WaitGroup
	for i, b := range open {
		wg.Go(func() { errs[i] = j.endBridge(ctx, b) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return errors.Join(errs...)
	}
	return nil
}

// Disconnect ends the use of a communicator when all its ranks have called it (MPI_Comm_disconnect,
// chapter Process Creation and Management). For the intercommunicator that [Comm.Accept], [Comm.Connect], [Comm.Spawn] or
// [Comm.Parent] gives, that ends the connection of the two jobs, and with it all communicators that
// were made of this one, when all messages that this rank has sent by it have left. The jobs are independent then: neither waits for the other one in Finalize.
// It frees any other communicator.
//
// Errors: those of [Comm.Free]; [ErrProcFailed]: a rank is gone. The connection has ended then,
// too. After an error of the context call it again.
//
// Experimental: it may change in any release.
func (c *Comm) Disconnect(ctx context.Context) (err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_disconnect"
	if ctx == nil {
		return fail(call, "ctx", ErrArg, "the context is nil")
	}
	if err := c.live(call); err != nil {
		return err
	}
	if c.j.of == nil || c != c.j.world {
		if c.id != 0 && c != c.j.self {
			if err := c.Barrier(ctx); err != nil {
				return err
			}
		}
		return c.Free()
	}
	err = c.j.of.endBridge(ctx, c.j)
	if err != nil && ctx.Err() != nil {
		return wrap(call, err)
	}
	attributes := error(nil)
	if c.freed.CompareAndSwap(false, true) {
		attributes = c.removeAttributes()
	}
	if attributes != nil {
		return &Error{Call: call, Class: ErrOther, Err: errors.Join(err, attributes)}
	}
	return wrap(call, err)
}

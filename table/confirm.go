package table

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// ErrUnconfirmed is the error of a change that the table has, and that not as many replicas have
// confirmed as [AwaitReplicas] says. Replicas may have it, and go on to get it.
//
// Experimental: it may change in any release.
var ErrUnconfirmed = errors.New("the table has the change, and too few replicas have confirmed it")

// AwaitReplicas has each Put and Delete of a [New] table return when n replicas have the change, which
// confirm it under a name of its own: see [Confirm]. There may be more replicas than n. While there are
// fewer, changes wait for another one as long as their contexts allow, and then fail with
// [ErrUnconfirmed].
//
// Experimental: it may change in any release.
func AwaitReplicas(n int, name string) Option {
	return func(o *options) { o.await, o.awaited, o.awaits = name, n, true }
}

// Confirm has a replica confirm the changes that it has, to an owner that awaits that under the name
// ([AwaitReplicas]). [Replicate] waits for the name as for that of the table.
//
// Experimental: it may change in any release.
func Confirm(name string) Option { return func(o *options) { o.confirm, o.confirms = name, true } }

// maxReplicas is how many replicas may confirm at a time, and spareHandlers how many more handlers run
// while some of these end.
const (
	maxReplicas   = 64
	spareHandlers = 8
)

// A replica that confirms calls the owner (package call) with the count of changes that it has. The
// owner answers when it has more.
type confirmRequest struct {
	Seed   [2]uint64 // the table's, and its replicas'
	Export uint32    // of the table that is replicated: a replica of a replica has another log
	PID    uint32    // of its process
	Count  uint64
}

type confirmAnswer struct{ Count uint64 }

// confirmations is what an owner has of the replicas that confirm.
type confirmations struct {
	need   int
	source confirmRequest // what those of this table say, but for the count
	server *call.Server

	mu      sync.Mutex
	begun   uint64                     // the owner's count of changes, with one that replicas may see. Guarded by mu.
	last    uint64                     // the owner's count of changes. Guarded by mu.
	counts  map[context.Context]uint64 // by the context of a replica's calls. Guarded by mu.
	changed chan struct{}              // Closed and replaced when any of these has changed. Guarded by mu.
	closed  bool                       // Guarded by mu.
}

// serveConfirmations begins to serve replicas.
func serveConfirmations(
	ctx context.Context, p *vmmc.Process, o *options, source confirmRequest,
) (*confirmations, error) {
	c := &confirmations{
		need: o.awaited, source: source,
		counts: map[context.Context]uint64{}, changed: make(chan struct{}),
	}
	opts := []call.ServeOption{
		call.MaxSlots(1), call.MaxClients(maxReplicas), call.Handlers(maxReplicas + spareHandlers),
	}
	if o.permits {
		opts = append(opts, call.Permit(o.permit...))
	}
	var err error
	c.server, err = call.Serve(ctx, p, o.await, c.serve, opts...)
	return c, err
}

// serve is a call of a replica. It returns when the owner has changes that the replica has not.
func (c *confirmations) serve(ctx context.Context, q *confirmRequest, a *confirmAnswer) error {
	if q.Seed != c.source.Seed || q.Export != c.source.Export || q.PID != c.source.PID {
		return errors.New("the replica is of another table, or of a replica of this one")
	}
	if err := c.confirm(ctx, q.Count); err != nil {
		return err
	}
	for {
		c.mu.Lock()
		last, changed := c.last, c.changed
		c.mu.Unlock()
		if last > q.Count {
			a.Count = last
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// confirm notes what a replica has.
func (c *confirmations) confirm(ctx context.Context, count uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if count > c.begun {
		return fmt.Errorf("the replica says that it has %d changes, of %d", count, c.begun)
	}
	if _, known := c.counts[ctx]; !known {
		if err := context.Cause(ctx); err != nil { // it may have been forgotten
			return err
		}
		context.AfterFunc(ctx, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.counts, ctx)
			c.wake()
		})
	}
	c.counts[ctx] = count
	pair.At("confirm.noted")
	c.wake()
	return nil
}

// wake has all look again. The caller holds mu.
func (c *confirmations) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// begin says that replicas may see a change from now on, and may confirm it before note is called.
func (c *confirmations) begin(count uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = count
}

// note notes a change of the owner. The caller has the table's lock, so counts rise.
func (c *confirmations) note(count uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = count
	c.wake()
}

// confirmed is how many replicas have a change. The caller holds mu.
func (c *confirmations) confirmed(count uint64) (n int) {
	for _, has := range c.counts {
		if has >= count {
			n++
		}
	}
	return n
}

// await waits until enough replicas have a change.
func (c *confirmations) await(ctx context.Context, op string, count uint64) error {
	for {
		c.mu.Lock()
		n, changed, closed := c.confirmed(count), c.changed, c.closed
		c.mu.Unlock()
		code := vmmc.ErrClosed
		switch {
		case n >= c.need:
			return nil
		case !closed:
			pair.At("confirm.awaited")
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				code = pair.ContextError(ctx, op).Code
			}
		}
		return &vmmc.Error{
			Op: op, Code: code, Err: fmt.Errorf("%w: %d of %d", ErrUnconfirmed, n, c.need),
		}
	}
}

// close ends the service, and what waits for confirmations.
func (c *confirmations) close() error {
	c.mu.Lock()
	c.closed = true
	c.wake()
	c.mu.Unlock()
	return c.server.Close()
}

// confirmer is what a replica that confirms has.
type confirmer struct {
	client *call.Client[confirmRequest, confirmAnswer]
	wake   chan struct{} // Has an element when the owner has changes.
	ended  chan struct{} // Closed when it confirms no more.
}

// confirms says whose changes a replica of the source confirms.
func (s *source) confirms() confirmRequest {
	return confirmRequest{Seed: s.seed, Export: s.im.ID(), PID: uint32(s.im.Exporter().PID)}
}

// confirm confirms what the replica has, again and again.
func (r *Replica[K, V]) confirm() {
	defer close(r.confirmer.ended)
	q, a := r.source.confirms(), confirmAnswer{}
	for {
		pair.At("confirm.sent")
		r.appliedMu.Lock()
		var applied <-chan struct{}
		q.Count, applied = r.count.Load(), r.applied
		r.appliedMu.Unlock()
		if err := r.confirmer.client.Call(r.ctx, &q, &a); err != nil {
			// A replica that does not confirm is none that the program wants.
			r.stop(fmt.Errorf("confirm the changes of table %s: %w", strconv.Quote(r.from.name), err))
			return
		}
		select {
		case r.confirmer.wake <- struct{}{}:
		default:
		}
		select {
		case <-applied:
		case <-r.ctx.Done():
			return
		}
	}
}

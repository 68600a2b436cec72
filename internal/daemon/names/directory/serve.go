package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Claim registers a name for a process of another node, or of this one. nodes is the digest of the
// claimer's view.
func (d *Directory) Claim(ctx context.Context, nodes uint64, r Registration) Answer {
	if a := d.settle(ctx, r.Key, nodes, &r); a.Outcome != Registered {
		return a
	}
	a := d.register(ctx, r)
	if a.Outcome == Full && d.makeRoom(ctx) {
		a = d.register(ctx, r)
	}
	return a
}

// register registers what the node of its owner says. What is in its way stays, unless its own
// node denies it.
func (d *Directory) register(ctx context.Context, r Registration) Answer {
	for range maxSet + 1 {
		o, other := d.table.register(r)
		switch o {
		case Full:
			return Answer{Outcome: Full, Reason: "the user, the node or the set has too many names there"}
		case Registered:
			return Answer{}
		}
		h, err := d.holds(ctx, 0, other)
		switch {
		case err != nil:
			return Answer{Outcome: Taken, Owner: other.Owner, Reason: fmt.Sprintf(
				"node %q does not say whether the process still has it: %v", other.Owner.Node, err)}
		case h == HoldsName:
			return Answer{Outcome: Taken, Owner: other.Owner}
		case h == HoldsClaim:
			return Answer{Outcome: Claimed, Owner: other.Owner}
		}
		d.table.withdraw(other)
	}
	return Answer{Outcome: Claimed}
}

// holds asks the node of an owner, for a bounded time. nodes is as in Holds.
func (d *Directory) holds(ctx context.Context, nodes uint64, r Registration) (Holding, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if r.Owner.Node == d.cfg.Node {
		return d.Holds(ctx, nodes, r)
	}
	return d.cfg.Net.Holds(ctx, r.Owner.Node, nodes, r)
}

// Holds says what a process of this node has of a name. nodes is the digest of the asker's view, 0
// for any; a node that has another view fails the call. It compares the views after it has looked,
// so that its answer is not older than its view.
func (d *Directory) Holds(ctx context.Context, nodes uint64, r Registration) (Holding, error) {
	h := d.cfg.Names.Holding(ctx, r)
	if view, _ := d.View(); nodes != 0 && nodes != view.Digest {
		return 0, code.New(code.Timeout, "node %q has another list of nodes", d.cfg.Node)
	}
	return h, nil
}

// Update takes what is registered elsewhere already, which adds to what the node knows in any
// state, and what is withdrawn.
func (d *Directory) Update(ctx context.Context, register, withdraw []Registration) []Outcome {
	d.wake()
	out := make([]Outcome, len(register))
	swept := false
	for i, r := range register {
		if view, _ := d.View(); !view.isDirectory(d.cfg.Node, r.Key) {
			out[i] = OtherNodes
			continue
		}
		out[i] = d.register(ctx, r).Outcome
		if out[i] == Full && !swept {
			if swept = true; d.makeRoom(ctx) {
				out[i] = d.register(ctx, r).Outcome
			}
		}
	}
	for _, r := range withdraw {
		d.table.withdraw(r)
	}
	return out
}

// Find looks a name up for another node, or for this one. It returns Absent only if the node knows
// all that is registered of the name.
func (d *Directory) Find(ctx context.Context, q Query) Answer {
	d.wake()
	if view, _ := d.View(); q.Nodes != 0 && q.Nodes != view.Digest {
		return Answer{Outcome: OtherNodes, Reason: "it has another list of nodes"}
	}
	for _, r := range q.Stale[:min(len(q.Stale), maxAnswered)] {
		if r.Key == q.Key {
			d.check(ctx, r)
		}
	}
	if !q.Wait {
		if a, found := d.answer(q.Key); found {
			return a
		}
		if a := d.settle(ctx, q.Key, 0, nil); a.Outcome != Registered {
			return a
		}
		a, _ := d.answer(q.Key)
		return a
	}
	if !d.table.enter(q.Key) {
		return Answer{
			Outcome: Full, Reason: fmt.Sprintf("%d look-ups of the user wait there already", maxUserWaits),
		}
	}
	defer d.table.leave(q.Key)
	for {
		view, changed := d.View()
		if !view.isDirectory(d.cfg.Node, q.Key) {
			return Answer{Outcome: OtherNodes, Reason: "it has another list of nodes"}
		}
		owners, found := d.table.find(q.Key)
		if len(owners) > 0 {
			return Answer{Owners: owners}
		}
		select {
		case <-found:
		case <-changed:
		case <-ctx.Done():
			return Answer{Outcome: Absent}
		}
	}
}

// answer is that to a look-up which does not wait.
func (d *Directory) answer(k Key) (a Answer, found bool) {
	if owners, _ := d.table.find(k); len(owners) > 0 {
		return Answer{Owners: owners}, true
	}
	return Answer{Outcome: Absent}, false
}

// check removes a registration that is there, if its node denies it.
func (d *Directory) check(ctx context.Context, r Registration) {
	if !d.table.has(r) {
		return
	}
	if h, err := d.holds(ctx, 0, r); err == nil && h == HoldsNothing {
		d.table.withdraw(r)
	}
}

// maxPage bounds a page of names, in bytes as Registration.size counts them.
const maxPage = 32 << 10

// Owned returns the names of this node's processes for which another node is a directory node.
func (d *Directory) Owned(
	ctx context.Context, node string, nodes uint64, after *Registration,
) (p Page, err error) {
	view, _ := d.View()
	if view.Digest != nodes {
		return Page{OtherNodes: true}, nil
	}
	p.Owned, err = d.cfg.Names.Owned(ctx, after == nil)
	if err != nil {
		return p, err
	}
	all := p.Registrations
	p.Registrations = nil
	// A claim that has begun since was begun with this view or a later one, and is not missed: see
	// claim.
	if now, _ := d.View(); now.Digest != nodes {
		return Page{OtherNodes: true}, nil
	}
	all = slices.DeleteFunc(all, func(r Registration) bool {
		return after != nil && compare(r, *after) <= 0 || !view.isDirectory(node, r.Key)
	})
	slices.SortFunc(all, compare)
	for size := 0; len(all) > 0; all = all[1:] {
		if size += all[0].size(); size > maxPage && len(p.Registrations) > 0 {
			p.More = true
			break
		}
		p.Registrations = append(p.Registrations, all[0])
	}
	if len(p.Registrations) > 0 { // its answers tell this node which of them another process has
		d.cfg.Go(func() {
			for _, r := range p.Registrations {
				d.reintroduce(node, r)
			}
		})
	}
	return p, nil
}

// compare orders the registrations of one node.
func compare(a, b Registration) int {
	return cmp.Or(
		strings.Compare(a.User, b.User), strings.Compare(a.Session, b.Session),
		strings.Compare(a.Name, b.Name), cmp.Compare(a.Owner.PID, b.Owner.PID),
		cmp.Compare(a.Owner.Incarnation, b.Owner.Incarnation), cmp.Compare(a.Serial, b.Serial),
	)
}

// Pauses between attempts to hear from a node, and to tell it.
const (
	minPause = 20 * time.Millisecond
	maxPause = 5 * time.Second
)

// maxAsked is how many nodes are asked at a time.
const maxAsked = 32

// recover hears from nodes what their processes have, until each has answered. Those that cannot be
// reached are asked again and again.
func (d *Directory) recover(ctx context.Context, view *View, nodes []string) {
	later := map[string]time.Time{} // when to ask a node for whose names there was no room
	for pause := minPause; len(nodes) > 0; pause = min(2*pause, maxPause) {
		var mu sync.Mutex
		var left []string
		each(nodes, func(node string) {
			mu.Lock()
			wait := time.Now().Before(later[node])
			mu.Unlock()
			var err error
			if !wait {
				if err = d.hear(ctx, view, node); err != nil {
					d.notHeard(ctx, node, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, errNoRoom) {
				later[node] = time.Now().Add(sweepInterval)
			}
			if wait || err != nil {
				left = append(left, node)
			}
		})
		if nodes = left; len(nodes) > 0 && !timeout.Sleep(ctx, pause) {
			return
		}
	}
}

// each calls f for each node, of at most maxAsked at a time.
func each(nodes []string, f func(string)) {
	next := make(chan string)
	var all sync.WaitGroup
	for range min(maxAsked, len(nodes)) {
		all.Go(func() {
			for node := range next {
				f(node)
			}
		})
	}
	for _, node := range nodes {
		next <- node
	}
	close(next)
	all.Wait()
}

// hear takes the names of one node's processes. The error says that they are not all.
func (d *Directory) hear(ctx context.Context, view *View, node string) error {
	lacks, err := d.listen(ctx, view, node)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil { // another view, with other nodes that are missing
		return ctx.Err()
	}
	_, missing := d.missing[node]
	_, partly := d.partial[node]
	if missing || partly { // else claims do not wait for it
		delete(d.missing, node)
		if len(lacks.users) > 0 {
			d.partial[node] = lacks.users
		} else {
			delete(d.partial, node)
			delete(d.left, node)
		}
		if len(d.missing)+len(d.partial) == 0 {
			d.served()
		} else {
			d.news()
		}
	}
	return lacks.err()
}

// lacking is what a node has not said, or what there was no room for.
type lacking struct {
	users  partial
	noRoom bool
}

var (
	errNoRoom  = errors.New("there is no room for all its names")
	errPartial = errors.New("not all is known of its names")
)

func (l lacking) err() error {
	switch {
	case l.noRoom:
		return errNoRoom
	case len(l.users) > 0:
		return errPartial
	}
	return nil
}

// listen registers the names of one node's processes, and ends registrations that were there before
// and are not among them.
func (d *Directory) listen(
	ctx context.Context, view *View, node string,
) (lacks lacking, err error) {
	lacks.users = partial{}
	has := map[update]bool{}
	before := d.registered(view, node)
	var after *Registration
	for {
		actx, stop := context.WithTimeout(ctx, 5*patience)
		p, err := d.owned(actx, node, view.Digest, after)
		stop()
		switch {
		case err != nil && d.cfg.Older(err): // it has none
			return lacks, nil
		case err != nil:
			return lacks, err
		case p.OtherNodes:
			return lacks, fmt.Errorf("it has another list of nodes")
		}
		for _, user := range p.Absent {
			lacks.users[user] = fmt.Sprintf("a process of user %q that may have names has not come back", user)
		}
		for _, r := range p.Registrations {
			if r.Owner.Node != node || !view.isDirectory(d.cfg.Node, r.Key) {
				continue
			}
			has[update{r.Key, r.export()}] = true
			switch a := d.registerHeard(ctx, r); {
			case a.Outcome == Full: // another process must not get the name
				lacks.noRoom = true
				lacks.users[r.User] = a.Reason
			case a.Outcome == Claimed, a.Outcome == Taken && a.Reason != "":
				// The claim may have had this node's consent before the node forgot it, and what is in its
				// way may end first: no other claim must have the consent then. A claim that is in the way
				// may have come from a list, too, and must not succeed here.
				lacks.users[r.User] = fmt.Sprintf("%v and %v both claim the %v", r.Owner, a.Owner, r.Key)
			}
		}
		if !p.More || len(p.Registrations) == 0 {
			break
		}
		after = &p.Registrations[len(p.Registrations)-1]
	}
	for _, r := range before {
		if _, partly := lacks.users[r.User]; !partly && !has[update{r.Key, r.export()}] {
			d.table.withdraw(r)
		}
	}
	return lacks, nil
}

// registerHeard is register of what a node has listed. A claim that is refused is Claimed, also if
// the other process has the name. Taken without a reason says that both processes have it, as the
// list of nodes can make them: the contest of their nodes decides.
func (d *Directory) registerHeard(ctx context.Context, r Registration) Answer {
	a := d.register(ctx, r)
	if a.Outcome != Taken || a.Reason != "" {
		return a
	}
	if h, err := d.holds(ctx, 0, r); err != nil || h != HoldsName {
		a.Outcome = Claimed
		return a
	}
	return d.register(ctx, r) // the other process may have ended the name before the claim succeeded
}

// registered returns what is registered of a node, if that is by the view.
func (d *Directory) registered(view *View, node string) []Registration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.view.Digest != view.Digest {
		return nil
	}
	return d.table.of(node)
}

// sweepInterval is the least time between two sweeps.
const sweepInterval = time.Minute

// makeRoom has registrations swept of names that have ended without that being told: because their
// daemon was down, or could not reach this node for long. It reports whether that was done, and
// waits for it for a bounded time.
func (d *Directory) makeRoom(ctx context.Context) bool {
	d.mu.Lock()
	if d.sweeping == nil {
		if !d.swept.IsZero() && time.Since(d.swept) < sweepInterval {
			d.mu.Unlock()
			return false
		}
		d.sweeping, d.swept = make(chan struct{}), time.Now()
		view := d.view
		d.cfg.Go(func() { d.sweep(view) })
	}
	done := d.sweeping
	d.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// sweep hears from all nodes that have registrations here, so that those end that they deny.
func (d *Directory) sweep(view *View) {
	each(d.table.registrars(), func(node string) {
		if _, err := d.listen(d.cfg.Ctx, view, node); err != nil {
			d.cfg.Log.Debug("a node does not say which names its processes have", "node", node, "err", err)
		}
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.sweeping)
	d.sweeping = nil
}

// owned asks a node, which may be this one.
func (d *Directory) owned(
	ctx context.Context, node string, nodes uint64, after *Registration,
) (Page, error) {
	if node == d.cfg.Node {
		return d.Owned(ctx, node, nodes, after)
	}
	return d.cfg.Net.Owned(ctx, node, nodes, after)
}

// notHeard notes why a node has not answered.
func (d *Directory) notHeard(ctx context.Context, node string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.missing[node]; there && ctx.Err() == nil {
		d.missing[node] = err.Error()
	}
}

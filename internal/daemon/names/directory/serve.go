package directory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Claim registers a name for a process of another node, or of this one. nodes is the digest of the
// claimer's view.
func (d *Directory) Claim(ctx context.Context, nodes uint64, r Registration) Answer {
	if a := d.settle(ctx, r.Key, nodes); a.Outcome != Registered {
		return a
	}
	return d.register(ctx, r)
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
		h, err := d.holds(ctx, other)
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

// holds asks the node of an owner, for a bounded time.
func (d *Directory) holds(ctx context.Context, r Registration) (Holding, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if r.Owner.Node == d.cfg.Node {
		return d.cfg.Names.Holding(ctx, r), nil
	}
	return d.cfg.Net.Holds(ctx, r.Owner.Node, r)
}

// Holds says what a process of this node has of a name.
func (d *Directory) Holds(ctx context.Context, r Registration) Holding {
	return d.cfg.Names.Holding(ctx, r)
}

// Update takes what is registered elsewhere already, which adds to what the node knows in any
// state, and what is withdrawn.
func (d *Directory) Update(ctx context.Context, register, withdraw []Registration) []Outcome {
	d.wake()
	out := make([]Outcome, len(register))
	for i, r := range register {
		if view, _ := d.View(); !view.isDirectory(d.cfg.Node, r.Key) {
			out[i] = OtherNodes
			continue
		}
		out[i] = d.register(ctx, r).Outcome
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
	for _, r := range q.Stale[:min(len(q.Stale), maxAnswered)] {
		if r.Key == q.Key {
			d.check(ctx, r)
		}
	}
	if !q.Wait {
		if a, found := d.answer(q.Key); found {
			return a
		}
		if a := d.settle(ctx, q.Key, 0); a.Outcome != Registered {
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
	if h, err := d.holds(ctx, r); err == nil && h == HoldsNothing {
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
	all, err := d.cfg.Names.Owned(ctx)
	if err != nil {
		return p, err
	}
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
			return p, nil
		}
		all[0].Order = d.nextOrder()
		p.Registrations = append(p.Registrations, all[0])
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

// sleep waits, and reports whether the context goes on.
func sleep(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// maxAsked is how many nodes are asked at a time.
const maxAsked = 32

// recover hears from nodes what their processes have, until each has answered. Those that cannot be
// reached are asked again and again.
func (d *Directory) recover(ctx context.Context, view *View, nodes []string) {
	for pause := minPause; len(nodes) > 0; pause = min(2*pause, maxPause) {
		next := make(chan string)
		failed := make(chan string, len(nodes))
		done := make(chan struct{})
		workers := min(maxAsked, len(nodes))
		for range workers {
			go func() {
				defer func() { done <- struct{}{} }()
				for node := range next {
					if err := d.hear(ctx, view, node); err != nil {
						d.notHeard(ctx, node, err)
						failed <- node
					}
				}
			}()
		}
		for _, node := range nodes {
			next <- node
		}
		close(next)
		for range workers {
			<-done
		}
		close(failed)
		nodes = nil
		for node := range failed {
			nodes = append(nodes, node)
		}
		if len(nodes) > 0 && !sleep(ctx, pause) {
			return
		}
	}
}

// hear takes the names of one node's processes.
func (d *Directory) hear(ctx context.Context, view *View, node string) error {
	var after *Registration
	for {
		actx, stop := context.WithTimeout(ctx, 5*patience) // its processes may be coming back
		p, err := d.owned(actx, node, view.Digest, after)
		stop()
		switch {
		case err != nil && d.cfg.Older(err): // it has none
			p = Page{}
		case err != nil:
			return err
		case p.OtherNodes:
			return fmt.Errorf("it has another list of nodes")
		}
		for _, r := range p.Registrations {
			if r.Owner.Node != node || !view.isDirectory(d.cfg.Node, r.Key) {
				continue
			}
			if a := d.register(ctx, r); a.Outcome == Full {
				return errors.New(a.Reason) // else another process might get the name
			}
		}
		if !p.More || len(p.Registrations) == 0 {
			break
		}
		after = &p.Registrations[len(p.Registrations)-1]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil { // another view, with other nodes that are missing
		return ctx.Err()
	}
	delete(d.missing, node)
	if len(d.missing) == 0 {
		d.served()
	}
	return nil
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

package directory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Acquire claims a name for a process of this node, which claims it in the node's own table
// meanwhile (Names). order gives the order of each attempt, and fails once that claim has ended. The
// error is a [names.TakenError] if another process has the name. After an error nothing stays
// registered.
func (d *Directory) Acquire(
	ctx context.Context, r Registration, order func() (uint64, error),
) error {
	late := time.NewTimer(timeout.Control)
	defer late.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, maxClaimPause) {
		var err error
		if r.Order, err = order(); err != nil {
			return err
		}
		err, again := d.tryAcquire(ctx, r)
		if err == nil {
			return nil
		}
		if !again {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-late.C:
			t.Stop()
			return err
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%w: %w", timeout.Ended(ctx), err)
		}
	}
}

// maxClaimPause bounds the pause between attempts of a claim.
const maxClaimPause = 250 * time.Millisecond

// tryAcquire is one attempt. again reports whether another one is worthwhile. A failed attempt
// withdraws what it has registered by its own order, so that a later claim of the export stays.
func (d *Directory) tryAcquire(ctx context.Context, r Registration) (err error, again bool) {
	view, _ := d.View()
	set := view.Set(r.Key)
	need := quorum(set)
	var without refusals
	got, others := 0, slices.Clone(set)
	for i, node := range set {
		if got == need {
			break
		}
		a, err := d.claimAt(ctx, node, view.Digest, r)
		switch {
		case ctx.Err() != nil:
			err = ctxError(ctx, r.Key)
		case err != nil:
			without.add(node, err.Error(), d.cfg.Older(err), false)
			continue
		case a.Outcome == Registered:
			got++
			others = slices.DeleteFunc(others, func(o string) bool { return o == node })
			continue
		case a.Outcome == Waiting, a.Outcome == OtherNodes:
			without.add(node, a.Reason, false, true)
			continue
		case a.Outcome == Full:
			err = code.New(code.NoMem, "node %q registers no more names: %s", node, a.Reason)
		case a.Outcome == Taken && a.Reason != "":
			err = fmt.Errorf("%w: %s", &names.TakenError{Key: own(r.Key), Owner: a.Owner}, a.Reason)
		case a.Outcome == Taken:
			err = &names.TakenError{Key: own(r.Key), Owner: a.Owner}
		default:
			again = true
			err = code.New(code.Timeout, "%v claims the %v", a.Owner, r.Key)
		}
		d.outbox.withdraw(set[:i+1], r)
		return err, again
	}
	now, _ := d.View()
	switch {
	case got < need:
		d.outbox.withdraw(set, r)
		return without.err(r.Key, set), without.passing
	case now.Digest != view.Digest: // what was agreed to need not be what the new list asks for
		d.outbox.withdraw(set, r)
		return code.New(code.Timeout, "the list of nodes changes"), true
	}
	d.outbox.register(others, r)
	return nil, false
}

// own is the key as the node's own table has it.
func own(k Key) names.Key { return names.Key{Scope: k.Scope, Name: k.Name, Cluster: true} }

func ctxError(ctx context.Context, k Key) error {
	return fmt.Errorf("the %v: %w", k, timeout.Ended(ctx))
}

// claimAt asks one directory node, which may be this one.
func (d *Directory) claimAt(
	ctx context.Context, node string, nodes uint64, r Registration,
) (Answer, error) {
	if node == d.cfg.Node {
		return d.Claim(ctx, nodes, r), nil
	}
	ctx, stop := context.WithTimeout(ctx, 3*patience) // the node waits, and asks another one
	defer stop()
	return d.cfg.Net.Claim(ctx, node, nodes, r)
}

// refusals are the directory nodes that do not answer, and why.
type refusals struct {
	why     []string
	older   int
	passing bool // reports whether another attempt may succeed soon
}

func (s *refusals) add(node, why string, older, passing bool) {
	s.why = append(s.why, fmt.Sprintf("node %q: %s", node, why))
	if older {
		s.older++
	}
	s.passing = s.passing || passing
}

// err names them. A claim or a look-up needs others than these.
func (s *refusals) err(k Key, set []string) error {
	c := code.Unreachable
	if s.older > 0 && s.older > len(set)-quorum(set) {
		c = code.NotImplemented
	}
	return code.New(c, "the %v is kept by %s, of which %d must answer: %s", k, strings.Join(set, ", "),
		quorum(set), strings.Join(s.why, "; "))
}

// Restore registers a name anew that a process of this node has, as it says, from the daemon
// before this one.
func (d *Directory) Restore(r Registration) {
	view, _ := d.View()
	d.outbox.register(view.Set(r.Key), r)
}

// Withdraw ends the registrations of a name that a process of this node had, up to the order of r,
// which was taken when the name ended.
func (d *Directory) Withdraw(r Registration) {
	view, _ := d.View()
	d.outbox.withdraw(view.Set(r.Key), r)
}

// outbox is what other nodes are still to be told, each by one goroutine at a time. It is tried
// again until the node can be reached.
type outbox struct {
	d *Directory

	mu    sync.Mutex
	nodes map[string]*pending // present while its goroutine runs. Guarded by mu.
}

// pending is what one node is to be told: the latest about each registration. Guarded by outbox.mu.
type pending struct {
	updates   map[update]change
	withdrawn int // of updates
}

// update is what a change is about.
type update struct {
	Key
	export
}

// change is a registration, or its end.
type change struct {
	Registration
	withdraw bool
}

// Limits on what is kept for a node that cannot be reached, and told at once. What is withdrawn and
// not kept is found to be stale by the next look-up or claim.
const (
	maxWithdrawn = 4_096
	maxTold      = 32 << 10 // bytes, as Registration.size counts them
)

// register has nodes told that a name is registered.
func (b *outbox) register(nodes []string, r Registration) {
	for _, n := range nodes {
		b.put(n, change{r, false})
	}
}

// withdraw has nodes told that a name is withdrawn.
func (b *outbox) withdraw(nodes []string, r Registration) {
	for _, n := range nodes {
		b.put(n, change{r, true})
	}
}

func (b *outbox) put(node string, c change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.nodes[node]
	begin := p == nil
	if begin {
		if b.nodes == nil {
			b.nodes = map[string]*pending{}
		}
		p = &pending{updates: map[update]change{}}
		b.nodes[node] = p
	}
	u := update{c.Key, c.export()}
	if old, there := p.updates[u]; there {
		if old.Order >= c.Order {
			return
		}
		p.drop(u)
	}
	if c.withdraw {
		if p.withdrawn >= maxWithdrawn {
			return
		}
		p.withdrawn++
	}
	p.updates[u] = c
	if begin {
		b.d.cfg.Go(func() { b.tell(node) })
	}
}

// drop forgets a change. mu is held.
func (p *pending) drop(u update) {
	if p.updates[u].withdraw {
		p.withdrawn--
	}
	delete(p.updates, u)
}

// next returns what a node is told next. Without anything the goroutine ends.
func (b *outbox) next(node string) (register, withdraw []Registration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	for _, c := range b.nodes[node].updates {
		if size += c.size(); size > maxTold && len(register)+len(withdraw) > 0 {
			break
		}
		if c.withdraw {
			withdraw = append(withdraw, c.Registration)
		} else {
			register = append(register, c.Registration)
		}
	}
	if size == 0 {
		delete(b.nodes, node)
	}
	return register, withdraw
}

// told forgets what a node has taken.
func (b *outbox) told(node string, rs []Registration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.nodes[node]
	for _, r := range rs {
		u := update{r.Key, r.export()}
		if c, there := p.updates[u]; there && c.Order == r.Order {
			p.drop(u)
		}
	}
}

// tell tells a node all that it is to be told.
func (b *outbox) tell(node string) {
	ctx := b.d.cfg.Ctx
	for pause := minPause; ; {
		register, withdraw := b.next(node)
		if len(register)+len(withdraw) == 0 {
			return
		}
		outcomes, err := b.update(ctx, node, register, withdraw)
		if view, _ := b.d.View(); err == nil || !view.has(node) {
			b.told(node, withdraw)
			// Taken, too: the node may have an old owner that it could not ask.
			again := func(o Outcome) bool { return o == Claimed || o == Full || o == Taken }
			later := slices.ContainsFunc(outcomes, again)
			for i, r := range register {
				if i >= len(outcomes) || !again(outcomes[i]) {
					b.told(node, []Registration{r})
				} else if outcomes[i] == Taken {
					b.d.contests.begin(r)
				}
			}
			if !later {
				pause = minPause
				continue
			}
		}
		if !timeout.Sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// update tells a node, which may be this one.
func (b *outbox) update(
	ctx context.Context, node string, register, withdraw []Registration,
) ([]Outcome, error) {
	if node == b.d.cfg.Node {
		return b.d.Update(ctx, register, withdraw), nil
	}
	ctx, stop := context.WithTimeout(ctx, 5*patience)
	defer stop()
	out, err := b.d.cfg.Net.Update(ctx, node, register, withdraw)
	if err == nil && len(out) != len(register) {
		err = errors.New("it has not answered all")
	}
	return out, err
}

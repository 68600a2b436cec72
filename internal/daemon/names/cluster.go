package names

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Ordered is a name of the cluster and the order of what the directory is told of it. The table
// gives orders under its lock: an order that is taken while an entry is there is greater than that of
// its beginning, and lower than that of its end, which is lower than those of a later entry of the
// same export. So what the directory is told late undoes nothing newer.
type Ordered struct {
	*Entry
	Order uint64
}

// nextOrder is greater than the orders of a daemon before this one, because now is the machine's
// clock. mu is held.
func (t *Table) nextOrder() uint64 {
	t.order = max(t.order+1, uint64(unix.Monotonic()))
	return t.order
}

// Order gives an entry that has not ended the order of what the directory is told next. The error
// says why the entry has ended.
func (t *Table) Order(e *Entry) (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.state == entryEnded {
		return 0, e.cause
	}
	return t.nextOrder(), nil
}

// EndAgain has [Table.TakeEnded] return an entry once more if it has ended: the directory was told
// of the entry meanwhile, and may have taken that after the withdrawal.
func (t *Table) EndAgain(e *Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endAgain(e)
}

// endAgain is EndAgain. mu is held.
func (t *Table) endAgain(e *Entry) {
	if e.state == entryEnded && e.Key.Cluster {
		t.ended = append(t.ended, Ordered{e, e.endOrder})
	}
}

// TakeEnded returns the names of the cluster that have ended since the last call, also those whose
// claim has, with the orders of their ends. The caller withdraws them from the directory, after each
// call that may end some.
func (t *Table) TakeEnded() []Ordered {
	t.mu.Lock()
	defer t.mu.Unlock()
	es := t.ended
	t.ended = nil
	return es
}

// OfCluster returns the names of the cluster that are claimed or held, and the order of the list.
func (t *Table) OfCluster() (es []*Entry, order uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	order = t.nextOrder()
	for _, u := range t.users {
		for _, s := range u.scopes {
			for at, n := range s.names {
				if at.cluster {
					es = append(es, n.entries...)
				}
			}
		}
	}
	return es, order
}

// Exact returns the entry that an export of a process has under a name, or nil, and whether it is
// held. Not held, it is claimed.
func (t *Table) Exact(k Key, id nodeproto.ProcessID, serial uint64) (e *Entry, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, _ = t.exact(k, id, serial)
	return e, e != nil && e.state == entryHeld
}

// exact is Exact, and gives the channel that is closed when a claim of the name ends. mu is held.
func (t *Table) exact(
	k Key, id nodeproto.ProcessID, serial uint64,
) (e *Entry, settled <-chan struct{}) {
	n := t.find(k)
	if n == nil {
		return nil, nil
	}
	for _, e := range n.entries {
		if e.Owner.ID == id && e.Serial == serial {
			return e, n.settled.wait()
		}
	}
	return nil, nil
}

// AwaitExact is Exact of a name that is held; it waits while the export claims the name. Without
// such an entry the error is [ErrAbsent].
func (t *Table) AwaitExact(
	ctx context.Context, k Key, id nodeproto.ProcessID, serial uint64,
) (*Entry, error) {
	for {
		t.mu.Lock()
		e, settled := t.exact(k, id, serial)
		held := e != nil && e.state == entryHeld
		t.mu.Unlock()
		switch {
		case e == nil:
			return nil, ErrAbsent
		case held:
			return e, nil
		}
		enter := fairshare.Leave(ctx)
		select {
		case <-settled:
			enter()
		case <-ctx.Done():
			enter()
			return nil, context.Cause(ctx)
		}
	}
}

package names

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// TakeEnded returns the names of the cluster that have ended since the last call, also those whose
// claim has. The caller withdraws them from the directory, after each call that may end some.
func (t *Table) TakeEnded() []*Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	es := t.ended
	t.ended = nil
	return es
}

// OfCluster returns the names of the cluster that are claimed or held.
func (t *Table) OfCluster() (es []*Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, u := range t.users {
		for _, s := range u.scopes {
			for at, n := range s {
				if at.cluster {
					es = append(es, n.entries...)
				}
			}
		}
	}
	return es
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
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

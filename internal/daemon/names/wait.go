package names

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
)

// ErrAbsent is what an admission says of an entry whose export is not there: it ends soon.
var ErrAbsent = errors.New("the export is not there")

// Find returns the held entries of a name, from the one whose turn it is, and around. The next call
// begins with the next one.
func (t *Table) Find(k Key) []*Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(k).inTurn()
}

// inTurn is Find. Table.mu is held.
func (n *name) inTurn() []*Entry {
	es := n.held()
	if len(es) < 2 {
		return es
	}
	at := n.turn % uint64(len(es))
	n.turn++
	return slices.Concat(es[at:], es[:at])
}

// held returns the entries that are held, the oldest first. Table.mu is held.
func (n *name) held() []*Entry {
	if n == nil {
		return nil
	}
	out := make([]*Entry, 0, len(n.entries))
	for _, e := range n.entries {
		if e.state == entryHeld {
			out = append(out, e)
		}
	}
	return out
}

// Choose returns the first entry that admit lets have. admit returns [ErrAbsent] for one that is to
// be passed over. Without such an entry, err is the first other error of admit, or nil.
func Choose(es []*Entry, admit func(*Entry) error) (e *Entry, err error) {
	for _, e := range es {
		if !e.Owner.Alive() { // the kernel knows it before the connection's reader
			continue
		}
		switch refused := admit(e); {
		case refused == nil:
			return e, nil
		case err == nil && !errors.Is(refused, ErrAbsent):
			err = refused
		}
	}
	return nil, err
}

// Wait is Find and Choose, and waits for an entry. It ends with an error of admit, and if the
// process has ended for which the name was reserved. o is the process that waits.
func (t *Table) Wait(
	ctx context.Context, o *Owner, k Key, admit func(*Entry) error,
) (*Entry, error) {
	if e, err := Choose(t.Find(k), admit); e != nil || err != nil {
		return e, err
	}
	if err := t.Enter(o, k); err != nil {
		return nil, err
	}
	defer t.Leave(o, k)
	// It is kept: a reservation that has ended may be forgotten before this call looks it up again.
	var reserved *reservation
	for {
		es, changed, err := t.findWaited(k, &reserved)
		if e, refused := Choose(es, admit); e != nil || refused != nil {
			return e, refused
		}
		if err != nil {
			return nil, err
		}
		enter := fairshare.Leave(ctx)
		select {
		case <-changed:
			enter()
		case <-ctx.Done():
			enter()
			return nil, fmt.Errorf("the %v is not published: %w", k, context.Cause(ctx))
		}
	}
}

// findWaited is Find of a name that has a waiter, and the channel that is closed when another entry
// is held or the name's reservation has ended. last is the reservation that the waiter has seen
// last; err says that its process has ended.
func (t *Table) findWaited(
	k Key, last **reservation,
) (es []*Entry, changed <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.find(k)
	*last = cmp.Or(n.reserved, *last)
	return n.inTurn(), n.found.wait(), (*last).ended()
}

// Enter counts a waiter for a name, and [Table.Leave] ends that. Wait does both. The user is that
// of the key.
func (t *Table) Enter(o *Owner, k Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.users[k.User]
	most := cmp.Or(o.MostWaits, maxWaitsOfProcess)
	switch {
	case o.waits >= most:
		return code.New(code.NoMem, "%d imports wait for names already", most)
	case u != nil && u.waits >= maxWaitsOfUser:
		return code.New(code.NoMem, "%d imports of user %q wait for names on the node already", maxWaitsOfUser,
			k.User)
	}
	n, u := t.make(k)
	n.waiters++
	u.waits++
	o.waits++
	return nil
}

// Leave ends what Enter has begun.
func (t *Table) Leave(o *Owner, k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.find(k).waiters--
	t.users[k.User].waits--
	o.waits--
	t.trim(k)
}

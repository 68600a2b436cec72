package names

import (
	"cmp"
	"math"
	"slices"
)

// Filter says whose names a list has; nil: all.
type Filter struct{ User, Session *string }

// Position is where a list goes on: after this one. The zero one is before all.
type Position struct {
	Name    string
	Cluster bool
	PID     uint32 // whose user and session no other position can have
	Buffer  uint32
}

// Position is that of an entry.
func (e *Entry) Position() Position {
	return Position{e.Key.Name, e.Key.Cluster, e.Owner.ID.PID, e.ID}
}

// Compare orders positions by name, process and buffer.
func (a Position) Compare(b Position) int {
	return cmp.Or(
		cmp.Compare(a.Name, b.Name), cmp.Compare(order(a.Cluster), order(b.Cluster)),
		cmp.Compare(a.PID, b.PID), cmp.Compare(a.Buffer, b.Buffer),
	)
}

// Page returns the first n held entries after a position that match.
func (t *Table) Page(f Filter, after Position, n int, match func(*Entry) bool) []*Entry {
	var page []*Entry
	cut := func() {
		slices.SortFunc(page, func(a, b *Entry) int { return a.Position().Compare(b.Position()) })
		page = page[:min(n, len(page))]
	}
	for _, s := range t.scopes(f) {
		found := 0
		for at, more := after, true; more && found < n; {
			var es []*Entry
			es, at, more = t.heldAfter(s, at)
			for _, e := range es {
				if match(e) { // without the lock: a pattern takes its time
					page = append(page, e)
					found++
				}
			}
		}
		if len(page) >= 4*n {
			cut()
		}
	}
	cut()
	return page
}

// scopes returns the scopes of a filter.
func (t *Table) scopes(f Filter) (all []Scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, u := range t.users {
		if f.User != nil && name != *f.User {
			continue
		}
		for session := range u.scopes {
			if f.Session == nil || session == *f.Session {
				all = append(all, Scope{name, session})
			}
		}
	}
	return all
}

// maxListed is how many names a list looks at with the lock held.
const maxListed = 256

// heldAfter returns the first held entries of a scope after a position, and the position of the last
// name that it has looked at. more reports whether there are names behind it.
func (t *Table) heldAfter(s Scope, after Position) (es []*Entry, last Position, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.users[s.User]
	if u == nil || u.scopes[s.Session] == nil {
		return nil, after, false
	}
	in := u.scopes[s.Session]
	from := in.search(place{after.Name, after.Cluster})
	names := in.sorted[from:min(from+maxListed, len(in.sorted))]
	if len(names) == 0 {
		return nil, after, false
	}
	for _, n := range names {
		begin := len(es)
		for _, e := range n.entries {
			if e.state == entryHeld && e.Position().Compare(after) > 0 {
				es = append(es, e)
			}
		}
		slices.SortFunc(es[begin:], func(a, b *Entry) int { return a.Position().Compare(b.Position()) })
	}
	at := names[len(names)-1].at
	last = Position{at.name, at.cluster, math.MaxUint32, math.MaxUint32}
	return es, last, from+len(names) < len(in.sorted)
}

package names

import (
	"cmp"
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
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.cluster(), b.cluster()),
		cmp.Compare(a.PID, b.PID), cmp.Compare(a.Buffer, b.Buffer),
	)
}

func (a Position) cluster() int {
	if a.Cluster {
		return 1
	}
	return 0
}

// Page returns the first n held entries after a position that match.
func (t *Table) Page(f Filter, after Position, n int, match func(*Entry) bool) []*Entry {
	var page []*Entry
	cut := func() {
		slices.SortFunc(page, func(a, b *Entry) int { return a.Position().Compare(b.Position()) })
		page = page[:min(n, len(page))]
	}
	for _, e := range t.all(f) {
		if e.Position().Compare(after) > 0 && match(e) {
			page = append(page, e)
		}
		if len(page) >= 4*n { // so all need not be sorted
			cut()
		}
	}
	cut()
	return page
}

// all returns the held entries of a filter.
func (t *Table) all(f Filter) (es []*Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, u := range t.users {
		if f.User != nil && name != *f.User {
			continue
		}
		for session, s := range u.scopes {
			if f.Session != nil && session != *f.Session {
				continue
			}
			for _, n := range s {
				es = append(es, n.held()...)
			}
		}
	}
	return es
}

package directory

import (
	"maps"
	"slices"
	"sync"
)

// Limits on what a directory node keeps, of each user and of each node that registers, so that none
// fills it for others.
const (
	maxUserBytes = 16 << 20 // some 50,000 names
	maxNodeBytes = 64 << 20
	maxSet       = 1_024  // registrations of one name
	maxUserWaits = 16_384 // look-ups that wait for names of one user
	maxAnswered  = 16     // owners in one answer
)

// size is what a registration takes, about.
func (r Registration) size() int {
	return 256 + len(r.Name) + len(r.User) + len(r.Session) + len(r.Owner.Node)
}

// table is what is registered with a node. The zero table is empty.
type table struct {
	mu      sync.Mutex
	names   map[Key]*record // present while there are registrations or waiters. Guarded by mu.
	users   map[string]int  // bytes. Guarded by mu.
	nodes   map[string]int  // bytes. Guarded by mu.
	waits   map[string]int  // of the users. Guarded by mu.
	journal *journal        // Guarded by mu.
}

// record is one name. Guarded by table.mu.
type record struct {
	owners  []Registration // several only if all are of a set; the oldest first
	waiters int
	found   chan struct{} // nil: nothing waits
	turn    uint64        // the owner of a set that find begins with, and around
}

// wake wakes those that wait.
func (n *record) wake() {
	if n.found != nil {
		close(n.found)
		n.found = nil
	}
}

// make returns a name. mu is held.
func (t *table) make(k Key) *record {
	n := t.names[k]
	if n == nil {
		if t.names == nil {
			t.names, t.users = map[Key]*record{}, map[string]int{}
			t.nodes, t.waits = map[string]int{}, map[string]int{}
		}
		n = &record{}
		t.names[k] = n
	}
	return n
}

// trim removes a name that has neither owners nor waiters. mu is held.
func (t *table) trim(k Key) {
	if n := t.names[k]; n != nil && len(n.owners) == 0 && n.waiters == 0 {
		delete(t.names, k)
	}
}

// count adds to the bytes of a registration's user and node. mu is held.
func (t *table) count(r Registration, bytes int) {
	if t.users[r.User] += bytes; t.users[r.User] == 0 {
		delete(t.users, r.User)
	}
	if t.nodes[r.Owner.Node] += bytes; t.nodes[r.Owner.Node] == 0 {
		delete(t.nodes, r.Owner.Node)
	}
}

// register adds a registration, or replaces an older one of the same export. It is Registered,
// Full, or Taken with the registration that is in its way, which must not be of an export that has
// the name no more.
func (t *table) register(r Registration) (Outcome, Registration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[r.Key]
	if n != nil {
		at := slices.IndexFunc(n.owners, r.same)
		if o, there := n.conflict(r); there {
			return Taken, o
		}
		if at >= 0 {
			if n.owners[at].Order < r.Order {
				n.owners[at] = r
				t.journal.add(t, r)
			}
			return Registered, r
		}
		if len(n.owners) >= maxSet {
			return Full, r
		}
	}
	size := r.size()
	if t.users[r.User]+size > maxUserBytes || t.nodes[r.Owner.Node]+size > maxNodeBytes {
		return Full, r
	}
	n = t.make(r.Key)
	n.owners = append(n.owners, r)
	t.count(r, size)
	t.journal.add(t, r)
	n.wake()
	return Registered, r
}

// conflict returns the registration that is in the way of another one.
func (n *record) conflict(r Registration) (o Registration, there bool) {
	for _, o := range n.owners {
		if !o.same(r) && (!o.Set || !r.Set) {
			return o, true
		}
	}
	return o, false
}

// conflict returns the registration that is in the way of another one.
func (t *table) conflict(r Registration) (o Registration, there bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.names[r.Key]; n != nil {
		return n.conflict(r)
	}
	return o, false
}

// withdraw removes a registration, unless it is newer.
func (t *table) withdraw(r Registration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.names[r.Key]; n != nil {
		t.remove(n, r, true)
	}
}

// remove is withdraw of a name that is there. mu is held.
func (t *table) remove(n *record, r Registration, record bool) {
	at := slices.IndexFunc(n.owners, r.same)
	if at < 0 || n.owners[at].Order > r.Order {
		return
	}
	n.owners = slices.Delete(n.owners, at, at+1)
	t.count(r, -r.size())
	if record {
		t.journal.remove(t, r)
	}
	t.trim(r.Key)
}

// find returns the owners of a name, the one whose turn it is first, and the channel that is closed
// when there is another one. The channel is nil unless the caller has entered.
func (t *table) find(k Key) (owners []Registration, found <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[k]
	if n == nil {
		return nil, nil
	}
	if len(n.owners) > 0 {
		at := n.turn % uint64(len(n.owners))
		n.turn++
		owners = slices.Concat(n.owners[at:], n.owners[:at])
		return owners[:min(len(owners), maxAnswered)], nil
	}
	if n.found == nil {
		n.found = make(chan struct{})
	}
	return nil, n.found
}

// enter counts a look-up that waits, until leave. It reports false if there are too many.
func (t *table) enter(k Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits[k.User] >= maxUserWaits {
		return false
	}
	t.make(k).waiters++
	t.waits[k.User]++
	return true
}

func (t *table) leave(k Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names[k].waiters--
	if t.waits[k.User]--; t.waits[k.User] == 0 {
		delete(t.waits, k.User)
	}
	t.trim(k)
}

// keep drops all registrations but those that keep says.
func (t *table) keep(keep func(Registration) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range slices.Collect(maps.Values(t.names)) {
		for _, r := range slices.Clone(n.owners) {
			if !keep(r) {
				t.remove(n, r, true)
			}
		}
		n.wake() // the node may be no directory node of it any more
	}
}

// restore takes what a daemon before this one has left, and returns the names of the nodes as it
// knew them, and those that had left the list; nil: it has left nothing.
func (t *table) restore() (nodes, left []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes, left, all := t.journal.read()
	for _, r := range all {
		n := t.make(r.Key)
		n.owners = append(n.owners, r)
		t.count(r, r.size())
	}
	if nodes != nil {
		t.journal.write(t, nodes, left)
	}
	return nodes, left
}

// discard makes the journal void: what it has is not all that the node must know.
func (t *table) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.journal.discard()
}

// record begins a journal that has all that the node must know.
func (t *table) record(nodes, left []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.journal.write(t, nodes, left)
}

// of returns the registrations of a node.
func (t *table) of(node string) (rs []Registration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes[node] == 0 {
		return nil
	}
	for _, n := range t.names {
		for _, r := range n.owners {
			if r.Owner.Node == node {
				rs = append(rs, r)
			}
		}
	}
	return rs
}

// registrars returns the nodes that have registrations.
func (t *table) registrars() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.nodes))
}

// all returns all registrations. mu is held.
func (t *table) all() (all []Registration) {
	for _, n := range t.names {
		all = append(all, n.owners...)
	}
	return all
}

// has reports whether a registration is there.
func (t *table) has(r Registration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.names[r.Key]
	return n != nil && slices.ContainsFunc(n.owners, r.same)
}

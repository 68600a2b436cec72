package names

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
)

// Limits on what the table keeps. Each is of one process or user, so that others go on.
const (
	maxOfExport       = 16
	maxOfProcess      = 16_384
	maxOfUser         = 65_536 // some 20 MB
	maxClusterOfUser  = 4_096
	maxSet            = 1_024
	maxWaitsOfProcess = 1_024 // leaves room for a connection's other requests
	maxWaitsOfUser    = 16_384
)

// Table is the names of a node.
type Table struct {
	mu       sync.Mutex
	users    map[string]*user        // present while there are names or waits. Guarded by mu.
	reserved map[uint32]*reservation // those that are kept, by pid. Guarded by mu.
	ended    []Ordered               // of the cluster, see TakeEnded. Guarded by mu.
	order    uint64                  // the last one given, see nextOrder. Guarded by mu.
}

// user is the names of one user. Guarded by Table.mu.
type user struct {
	scopes  map[string]*scope // by session
	entries int
	cluster int // entries that are names of the cluster
	waits   int
	ended   []*reservation // the oldest first
}

// scope is present while it has names. Guarded by Table.mu.
type scope struct {
	names  map[place]*name
	sorted []*name // the same, by place, for lists
}

// search returns where a place is among the sorted names, or would be.
func (s *scope) search(at place) int {
	i, _ := slices.BinarySearchFunc(s.sorted, at, func(n *name, at place) int { return n.at.compare(at) })
	return i
}

// place is a name within its scope.
type place struct {
	name    string
	cluster bool
}

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(order(a.cluster), order(b.cluster)))
}

// order is that of names of the cluster among others.
func order(cluster bool) int {
	if cluster {
		return 1
	}
	return 0
}

// name is present while it has entries, waiters or a reservation. Guarded by Table.mu.
type name struct {
	at       place
	entries  []*Entry     // claiming or held, the oldest first; several only if all are of a set
	found    broadcast    // for importers: another entry is held, or the reservation has ended
	settled  broadcast    // for claims: an entry was settled or has ended
	waiters  int          // calls of Wait
	reserved *reservation // nil: none
	turn     uint64       // the entry of a set that Find begins with, and around
}

// Owner is a process that has names or waits for them. A process that rejoins is another Owner.
type Owner struct {
	ID    nodeproto.ProcessID
	Alive func() bool // reports whether the process lives, as the kernel says

	MostWaits int // 0: maxWaitsOfProcess

	held  map[uint64][]*Entry // by the export's serial; claiming or held. Guarded by Table.mu.
	count int                 // number of entries in held. Guarded by Table.mu.
	waits int                 // Guarded by Table.mu.
	gone  bool                // reports whether Drop was called. Guarded by Table.mu.
}

// Entry is one name of one export.
type Entry struct {
	Key   Key
	Owner *Owner
	nodeproto.PublishRequest

	state      entryState // Guarded by Table.mu.
	cause      error      // why a claim has ended. Guarded by Table.mu.
	beginOrder uint64     // of a name of the cluster
	endOrder   uint64     // of a name of the cluster that has ended. Guarded by Table.mu.
}

// entryState is how far an entry has come.
//
//	claiming --> held --> ended
//	    |                   ^
//	    +-------------------+
//
// A claiming entry keeps others from the name and is not found. A claim ends by [Table.Settle] with
// an error, or because a returning process has had the name.
type entryState uint8

const (
	entryClaiming entryState = iota
	entryHeld
	entryEnded
)

func (s entryState) String() string { return [...]string{"claiming", "held", "ended"}[s] }

var entryTransitions = state.Table[entryState]{
	entryClaiming: {entryHeld, entryEnded},
	entryHeld:     {entryEnded},
}

// setState is the only writer of an entry's state. Table.mu is held.
func (e *Entry) setState(to entryState) {
	entryTransitions.Check(e.state, to)
	e.state = to
}

// find returns a name, or nil. mu is held.
func (t *Table) find(k Key) *name {
	u := t.users[k.User]
	if u == nil {
		return nil
	}
	s := u.scopes[k.Session]
	if s == nil {
		return nil
	}
	return s.names[place{k.Name, k.Cluster}]
}

// make returns a name, and its user. mu is held. The caller adds an entry, a waiter or a
// reservation.
func (t *Table) make(k Key) (*name, *user) {
	u := t.users[k.User]
	if u == nil {
		if t.users == nil {
			t.users = map[string]*user{}
		}
		u = &user{scopes: map[string]*scope{}}
		t.users[k.User] = u
	}
	s := u.scopes[k.Session]
	if s == nil {
		s = &scope{names: map[place]*name{}}
		u.scopes[k.Session] = s
	}
	at := place{k.Name, k.Cluster}
	n := s.names[at]
	if n == nil {
		n = &name{at: at}
		s.names[at] = n
		s.sorted = slices.Insert(s.sorted, s.search(at), n)
	}
	return n, u
}

// trim removes a name that has neither entries nor waiters nor a reservation. mu is held.
func (t *Table) trim(k Key) {
	u := t.users[k.User]
	s := u.scopes[k.Session]
	at := place{k.Name, k.Cluster}
	if n := s.names[at]; len(n.entries) > 0 || n.waiters > 0 || n.reserved != nil {
		return
	}
	if delete(s.names, at); len(s.names) > 0 {
		i := s.search(at)
		s.sorted = slices.Delete(s.sorted, i, i+1)
		return
	}
	if delete(u.scopes, k.Session); len(u.scopes) == 0 {
		delete(t.users, k.User)
	}
}

// A broadcast wakes waiters. Guarded by Table.mu.
type broadcast struct{ c chan struct{} } // nil: nothing waits

// wait returns the channel that the next wake closes.
func (b *broadcast) wait() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) wake() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}

// room returns an error if o cannot have another name for the export. mu is held.
func (t *Table) room(k Key, o *Owner, serial uint64) error {
	u := t.users[k.User]
	switch {
	case len(o.held[serial]) >= maxOfExport:
		return code.New(code.NoMem, "the export has %d names already", maxOfExport)
	case o.count >= maxOfProcess:
		return code.New(code.NoMem, "the process has %d names already", maxOfProcess)
	case u != nil && u.entries >= maxOfUser:
		return code.New(code.NoMem,
			"user %q has %d names on node %q already", k.User, maxOfUser, o.ID.Node)
	case u != nil && k.Cluster && u.cluster >= maxClusterOfUser:
		return code.New(code.NoMem, "user %q has %d names of the cluster on node %q already", k.User,
			maxClusterOfUser, o.ID.Node)
	}
	return nil
}

// add adds an entry. mu is held.
func (t *Table) add(k Key, o *Owner, r nodeproto.PublishRequest, s entryState) *Entry {
	n, u := t.make(k)
	e := &Entry{Key: k, Owner: o, PublishRequest: r, state: s}
	n.entries = append(n.entries, e)
	if o.held == nil {
		o.held = map[uint64][]*Entry{}
	}
	o.held[r.Serial] = append(o.held[r.Serial], e)
	o.count++
	if u.entries++; k.Cluster {
		u.cluster++
		e.beginOrder = t.nextOrder()
	}
	if s == entryHeld {
		n.found.wake()
	}
	return e
}

// end ends an entry that has not ended, and removes it. mu is held.
func (t *Table) end(e *Entry, cause error) {
	e.setState(entryEnded)
	e.cause = cause
	o, u, n := e.Owner, t.users[e.Key.User], t.find(e.Key)
	same := func(other *Entry) bool { return other == e }
	n.entries = slices.DeleteFunc(n.entries, same)
	if o.held[e.Serial] = slices.DeleteFunc(o.held[e.Serial], same); len(o.held[e.Serial]) == 0 {
		delete(o.held, e.Serial)
	}
	o.count--
	if u.entries--; e.Key.Cluster {
		u.cluster--
		e.endOrder = t.nextOrder()
		t.ended = append(t.ended, Ordered{e, e.endOrder})
	}
	n.settled.wake()
	t.trim(e.Key)
}

// own returns the entry that an export has under a name, or nil. mu is held.
func (o *Owner) own(k Key, serial uint64) *Entry {
	for _, e := range o.held[serial] {
		if e.Key == k {
			return e
		}
	}
	return nil
}

// Claim begins a claim of a name for an export of o, which [Table.Settle] ends. Held reports that
// the export has the name already, and nothing is to be settled. A claim waits for another claim of
// the name that is under way, and for the removal of an owner that has ended.
func (t *Table) Claim(
	ctx context.Context, k Key, o *Owner, r nodeproto.PublishRequest,
) (e *Entry, held bool, err error) {
	for {
		e, owner, changed, err := t.tryClaim(k, o, r)
		switch {
		case err != nil:
			return nil, false, err
		case e != nil:
			return e, owner == o, nil
		case owner != nil && owner.Alive():
			return nil, false, &TakenError{k, owner.ID}
		}
		enter := fairshare.Leave(ctx)
		select {
		case <-changed:
			enter()
		case <-ctx.Done():
			enter()
			return nil, false, fmt.Errorf("another process claims the %v, or its owner is just ending: %w", k,
				context.Cause(ctx))
		}
	}
}

// tryClaim is one attempt of Claim. Without an entry, changed is closed when it is worthwhile to
// try again. The owner is that of a held name: o itself if the export has it already.
func (t *Table) tryClaim(
	k Key, o *Owner, r nodeproto.PublishRequest,
) (e *Entry, owner *Owner, changed <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.gone {
		return nil, nil, nil, errGone
	}
	n := t.find(k)
	if err := n.reservedFrom(o.ID.PID); err != nil {
		return nil, nil, nil, err
	}
	if e := o.own(k, r.Serial); e != nil && e.Set == r.Set {
		if e.state == entryHeld {
			return e, o, nil, nil
		}
		return nil, nil, n.settled.wait(), nil
	}
	if n != nil && len(n.entries) > 0 {
		switch first := n.entries[0]; {
		case !first.Set || !r.Set:
			if first.state == entryHeld {
				owner = first.Owner
			}
			return nil, owner, n.settled.wait(), nil
		case len(n.entries) >= maxSet:
			return nil, nil, nil, fullSet(k)
		}
	}
	if err := t.room(k, o, r.Serial); err != nil {
		return nil, nil, nil, err
	}
	return t.add(k, o, r, entryClaiming), nil, nil, nil
}

func fullSet(k Key) error {
	return code.New(code.NoMem, "the %v has %d processes already", k, maxSet)
}

var (
	errGone      = code.New(code.NoDaemon, "the process has left")
	errNoExport  = code.New(code.BadRbufState, "the export has ended")
	errWithdrawn = code.New(code.BadRbufState, "the name was taken away meanwhile")
)

// Settle ends a claim: the name is held, or with an error given up. The error that it returns says
// why the claim has failed. The context is the request's: one that was cancelled before the next
// request of its process came does nothing after that one.
func (t *Table) Settle(ctx context.Context, e *Entry, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		err = context.Cause(ctx)
	}
	switch {
	case e.state == entryEnded:
		t.endAgain(e)
		return errors.Join(e.cause, err)
	case err != nil:
		t.end(e, err)
		return err
	}
	e.setState(entryHeld)
	n := t.find(e.Key)
	n.found.wake()
	n.settled.wake()
	return nil
}

// Restore gives a returning process a name that it has had. Claims of it that are under way end. It
// is an error if another process has the name, or if there is no room.
func (t *Table) Restore(k Key, o *Owner, r nodeproto.PublishRequest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.gone {
		return errGone
	}
	if o.own(k, r.Serial) != nil {
		return nil
	}
	var claims []*Entry
	if n := t.find(k); n != nil {
		if err := n.reservedFrom(o.ID.PID); err != nil {
			return err
		}
		for _, e := range n.entries {
			switch {
			case e.Set && r.Set:
			case e.state == entryHeld:
				return &TakenError{k, e.Owner.ID}
			default:
				claims = append(claims, e)
			}
		}
		if len(n.entries) >= maxSet+len(claims) {
			return fullSet(k)
		}
	}
	if err := t.room(k, o, r.Serial); err != nil {
		return err
	}
	for _, e := range claims {
		t.end(e, &TakenError{k, o.ID})
	}
	t.add(k, o, r, entryHeld)
	return nil
}

// Withdraw takes a name away from an export, if the export has it. For the context see Settle.
func (t *Table) Withdraw(ctx context.Context, o *Owner, k Key, serial uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if e := o.own(k, serial); e != nil {
		t.end(e, errWithdrawn)
	}
	return nil
}

// Lose ends a held name of the cluster that another process has, too. The order is that of what
// the directory was told of the entry: one that the export has claimed since stays. Lose returns the
// entry, or nil if the export does not hold the name.
func (t *Table) Lose(
	k Key, id nodeproto.ProcessID, serial, order uint64, to nodeproto.ProcessID,
) *Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, _ := t.exact(k, id, serial)
	if e == nil || e.state != entryHeld || e.beginOrder > order {
		return nil
	}
	t.end(e, &TakenError{k, to})
	return e
}

// EndExport takes all names away from an export that has ended.
func (t *Table) EndExport(o *Owner, serial uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range slices.Clone(o.held[serial]) {
		t.end(e, errNoExport)
	}
}

// Drop ends an owner with all its names.
func (t *Table) Drop(o *Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.gone = true
	for _, es := range o.held {
		for _, e := range slices.Clone(es) {
			t.end(e, errGone)
		}
	}
}

package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// latency is one way between two nodes of a simulation.
const latency = 100 * time.Microsecond

// sim is a cluster in one process, in virtual time. It counts calls between nodes.
type sim struct {
	t     testing.TB
	dir   string // for journals; "": there are none
	names []string

	mu    sync.Mutex
	nodes map[string]*simNode // those that run
	cut   map[[2]string]bool
	mute  map[[2]string]bool // calls of this kind to that node are not answered
	calls map[string]int     // by kind
	older map[string]bool
	lost  []string // names that processes have lost to others
	liar  string   // the node that names claim the owner of all names, twice, and says that it holds them
	claim nodeproto.ProcessID
}

// simNode is a node and its own names.
type simNode struct {
	s    *sim
	name string
	d    *Directory
	stop context.CancelFunc
	all  *sync.WaitGroup

	beginMu sync.Mutex
	ended   bool                    // no goroutine begins any more; as in a daemon that ends
	mu      *sync.Mutex             // also that of the node's next daemons, which have the same maps
	own     map[update]Registration // and what they hold
	has     map[update]Holding
	order   *uint64
	absent  map[string]bool // users with processes that may come back
}

func newSim(t testing.TB, n int, dir string) *sim {
	s := &sim{
		t: t, dir: dir, nodes: map[string]*simNode{}, cut: map[[2]string]bool{}, mute: map[[2]string]bool{}, calls: map[string]int{},
		older: map[string]bool{},
	}
	for i := range n {
		s.names = append(s.names, fmt.Sprintf("n%d", i+1))
	}
	for _, name := range s.names {
		s.start(name, nil)
	}
	t.Cleanup(s.close)
	return s
}

func (s *sim) close() {
	for _, name := range s.names {
		s.kill(name)
	}
}

// age has a node be older than the directory.
func (s *sim) age(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.older[node] = true
}

// start starts a node's daemon; its processes and their names are those of before.
func (s *sim) start(name string, before *simNode) *simNode {
	n := &simNode{s: s, name: name, own: map[update]Registration{}, has: map[update]Holding{}, mu: &sync.Mutex{}, order: new(uint64), absent: map[string]bool{}, all: &sync.WaitGroup{}}
	if before != nil {
		n.own, n.has, n.mu, n.order = before.own, before.has, before.mu, before.order
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	cfg := Config{
		Node: name, View: NewView(s.names), Net: n, Names: ownedNames{n}, Ctx: ctx, Go: n.begin,
		Older: func(err error) bool { return errors.Is(err, code.NotImplemented) },
		Log:   slog.New(slog.DiscardHandler),
	}
	if s.dir != "" {
		cfg.File, cfg.Boot = filepath.Join(s.dir, name), "boot"
	}
	n.d = New(cfg)
	s.mu.Lock()
	s.nodes[name] = n
	s.mu.Unlock()
	if before != nil {
		for _, r := range n.held() {
			n.mu.Lock()
			*n.order++
			r.Order = *n.order
			n.mu.Unlock()
			n.d.Restore(r)
		}
	}
	return n
}

// begin runs f, unless the node has ended.
func (n *simNode) begin(f func()) {
	n.beginMu.Lock()
	defer n.beginMu.Unlock()
	if !n.ended {
		n.all.Go(f)
	}
}

// kill ends a node's daemon.
func (s *sim) kill(name string) *simNode {
	s.mu.Lock()
	n := s.nodes[name]
	delete(s.nodes, name)
	s.mu.Unlock()
	if n != nil {
		n.stop()
		n.beginMu.Lock()
		n.ended = true
		n.beginMu.Unlock()
		n.all.Wait()
		n.d.Close()
	}
	return n
}

func (s *sim) node(name string) *simNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name]
}

// counted returns how many calls f makes, of each kind, once nothing is under way.
func (s *sim) counted(settle func(), f func()) map[string]int {
	settle()
	s.mu.Lock()
	before := maps.Clone(s.calls)
	s.mu.Unlock()
	f()
	settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	made := map[string]int{}
	for kind, n := range s.calls {
		if n > before[kind] {
			made[kind] = n - before[kind]
		}
	}
	return made
}

// call passes a call to another node.
func call[A any](
	ctx context.Context, n *simNode, node, kind string, f func(context.Context, *simNode) (A, error),
) (a A, err error) {
	s := n.s
	s.mu.Lock()
	s.calls[kind]++
	s.mu.Unlock()
	time.Sleep(latency)
	s.mu.Lock()
	to, cut, older := s.nodes[node], s.cut[[2]string{n.name, node}], s.older[node]
	mute := s.mute[[2]string{kind, node}]
	s.mu.Unlock()
	if mute {
		<-ctx.Done()
		return a, ctx.Err()
	}
	switch {
	case to == nil || cut:
		return a, code.New(code.Unreachable, "node %q cannot be reached", node)
	case older:
		return a, code.New(code.NotImplemented, "node %q is older", node)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(to.d.cfg.Ctx, stop)()
	a, err = f(ctx, to)
	time.Sleep(latency)
	if to.d.cfg.Ctx.Err() != nil {
		return a, code.New(code.Unreachable, "node %q was lost", node)
	}
	return a, err
}

func (n *simNode) Claim(ctx context.Context, node string, nodes uint64, r Registration) (Answer, error) {
	return call(ctx, n, node, "claim", func(ctx context.Context, o *simNode) (Answer, error) {
		return o.d.Claim(ctx, nodes, r), nil
	})
}

func (n *simNode) Update(ctx context.Context, node string, register, withdraw []Registration) ([]Outcome, error) {
	return call(ctx, n, node, "update", func(ctx context.Context, o *simNode) ([]Outcome, error) {
		return o.d.Update(ctx, register, withdraw), nil
	})
}

func (n *simNode) Find(ctx context.Context, node string, q Query) (Answer, error) {
	return call(ctx, n, node, "find", func(ctx context.Context, o *simNode) (Answer, error) {
		a := o.d.Find(ctx, q)
		if o.name == o.s.liar {
			r := Registration{Key: q.Key, Owner: o.s.claim, Serial: 1}
			a = Answer{Outcome: Registered, Owners: []Registration{r, r}}
		}
		return a, ctx.Err()
	})
}

func (n *simNode) Holds(ctx context.Context, node string, nodes uint64, r Registration) (Holding, error) {
	return call(ctx, n, node, "holds", func(ctx context.Context, o *simNode) (Holding, error) {
		if o.name == o.s.liar {
			return HoldsName, nil
		}
		return o.d.Holds(ctx, nodes, r)
	})
}

func (n *simNode) Owned(ctx context.Context, node string, nodes uint64, after *Registration) (Page, error) {
	return call(ctx, n, node, "owned", func(ctx context.Context, o *simNode) (Page, error) {
		return o.d.Owned(ctx, n.name, nodes, after)
	})
}

func (n *simNode) Holding(_ context.Context, r Registration) Holding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.has[update{r.Key, r.export()}]
}

// Names.Owned and Net.Owned have one name; see ownedNames.
type ownedNames struct{ *simNode }

func (o ownedNames) Owned(context.Context, bool) (own Owned, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*o.order++
	for u := range o.absent {
		own.Absent = append(own.Absent, u)
	}
	for _, r := range o.own {
		r.Order = *o.order
		own.Registrations = append(own.Registrations, r)
	}
	return own, nil
}

func (n *simNode) Lose(r Registration, to nodeproto.ProcessID) {
	u := update{r.Key, r.export()}
	n.mu.Lock()
	held := n.has[u] == HoldsName
	n.mu.Unlock()
	if held {
		n.s.mu.Lock()
		n.s.lost = append(n.s.lost, fmt.Sprintf("%s of %d to %d", r.Name, r.Owner.PID, to.PID))
		n.s.mu.Unlock()
		n.end(r)
	}
}

// publish claims a name for a process of the node.
func (n *simNode) publish(ctx context.Context, name string, pid uint32, set bool) (Registration, error) {
	r := Registration{
		Key:   Key{Scope: names.Scope{User: "u"}, Name: name},
		Owner: nodeproto.ProcessID{Node: n.name, PID: pid, Incarnation: 1}, Serial: 1, Set: set,
	}
	u := update{r.Key, r.export()}
	n.mu.Lock()
	n.own[u], n.has[u] = r, HoldsClaim
	n.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(n.d.cfg.Ctx, stop)()
	err := n.d.Acquire(ctx, r, func() (uint64, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if _, there := n.own[u]; !there {
			return 0, errors.New("it has ended meanwhile")
		}
		*n.order++
		return *n.order, nil
	})
	if err == nil { // a daemon that was killed has told no process that it has the name
		err = n.d.cfg.Ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		delete(n.own, u)
		delete(n.has, u)
		return r, err
	}
	n.has[u] = HoldsName
	return r, nil
}

// held are the names that the node's processes have.
func (n *simNode) held() (rs []Registration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for u, h := range n.has {
		if h == HoldsName {
			rs = append(rs, n.own[u])
		}
	}
	return rs
}

// end ends a process's name.
func (n *simNode) end(r Registration) { n.d.Withdraw(n.forget(r)) }

// forget is end without the withdrawal, which it returns.
func (n *simNode) forget(r Registration) Registration {
	u := update{r.Key, r.export()}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.own, u)
	delete(n.has, u)
	*n.order++
	r.Order = *n.order
	return r
}

// lookup finds the owner of a name, and imports from it.
func (n *simNode) lookup(ctx context.Context, name string, wait bool) (owner Registration, err error) {
	k := Key{Scope: names.Scope{User: "u"}, Name: name}
	err = n.d.Lookup(ctx, k, wait, func(ctx context.Context, r Registration) error {
		owner = r
		held := func(ctx context.Context, o *simNode) (Holding, error) {
			for o.Holding(ctx, r) == HoldsClaim && ctx.Err() == nil {
				time.Sleep(latency)
			}
			return o.Holding(ctx, r), nil
		}
		var h Holding
		var err error
		if r.Owner.Node == n.name {
			h, err = held(ctx, n)
		} else {
			h, err = call(ctx, n, r.Owner.Node, "import", held)
		}
		if err == nil && h != HoldsName {
			err = names.ErrAbsent
		}
		return err
	})
	return owner, err
}

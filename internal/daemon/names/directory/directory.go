package directory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
)

// Scope is whose name it is.
type Scope = names.Scope

// Key is a name of the cluster.
type Key struct {
	Scope
	Name string
}

func (k Key) String() string {
	return names.Key{Scope: k.Scope, Name: k.Name, Cluster: true}.String()
}

// Registration is a name that an export of a process has or claims.
type Registration struct {
	Key
	Owner  nodeproto.ProcessID
	Serial uint64 // the export's
	Set    bool   // others may have the name, too
	Order  uint64 // rises with what its node says of it, in the order of the node's own table
}

// export is what a registration is of.
type export struct {
	Owner  nodeproto.ProcessID
	Serial uint64
}

func (r Registration) export() export { return export{r.Owner, r.Serial} }

// same reports whether both are of one name of one export.
func (r Registration) same(o Registration) bool { return r.Key == o.Key && r.export() == o.export() }

// Outcome is what became of a claim, a registration or a look-up.
type Outcome uint8

// What became of a claim.
const (
	Registered Outcome = iota
	Taken              // another process has the name
	Claimed            // another process claims it at this moment
	Absent             // no process has registered it
	Waiting            // the node has not heard from all nodes yet
	OtherNodes         // the node is no directory node of the name, or has another list of nodes
	Full               // there is no room
)

func (o Outcome) String() string {
	return [...]string{
		"registered", "taken", "claimed", "absent", "waiting", "other nodes", "full",
	}[o]
}

// Answer is a directory node's to a claim or a look-up.
type Answer struct {
	Outcome Outcome
	Owner   nodeproto.ProcessID // by which the name is taken or claimed
	Owners  []Registration      // that a look-up has found, in the order in which to try them
	Reason  string              // for people to read
}

// Holding is what a process has of a name, as its node says.
type Holding uint8

// What a process has.
const (
	HoldsNothing Holding = iota
	HoldsClaim
	HoldsName
)

func (h Holding) String() string { return [...]string{"nothing", "claim", "name"}[h] }

// Query is a look-up.
type Query struct {
	Key
	Wait  bool           // the call lasts until there is an owner
	Nodes uint64         // digest of the asker's view, which the node must have, too; 0: any
	Stale []Registration // that were answered before, and that their nodes have denied
}

// Owned is what a node's processes hold and claim.
type Owned struct {
	Registrations []Registration // with orders that were taken with the list
	// Absent are users with processes that may come back, and have names then that are not among
	// these.
	Absent []string
}

// Page is a part of the names of a node's processes.
type Page struct {
	OtherNodes bool // the node has another list of nodes, and says nothing
	Owned
	More bool
}

// Net asks other nodes. An error says that there is no answer.
type Net interface {
	Claim(ctx context.Context, node string, nodes uint64, r Registration) (Answer, error)
	Update(ctx context.Context, node string, register, withdraw []Registration) ([]Outcome, error)
	Find(ctx context.Context, node string, q Query) (Answer, error)
	// Holds fails if nodes is not 0, and the node has another view.
	Holds(ctx context.Context, node string, nodes uint64, r Registration) (Holding, error)
	Owned(ctx context.Context, node string, nodes uint64, after *Registration) (Page, error)
}

// Names are those of the node's own processes.
type Names interface {
	// Holding says what an export has of a name. If a process may come back that has had it, Holding
	// waits, or says that it claims it.
	Holding(ctx context.Context, r Registration) Holding
	// Owned returns what its processes hold and claim. With wait it first waits for a moment for those
	// that may come back.
	Owned(ctx context.Context, wait bool) (Owned, error)
	// Lose ends a name that another process has, too, and tells the process that has it no more. An
	// entry that began after the order of r stays.
	Lose(r Registration, to nodeproto.ProcessID)
}

// Config is what a Directory needs of its node.
type Config struct {
	Node  string
	View  *View
	Net   Net
	Names Names
	// Older reports whether an error of Net says that the node knows no directory.
	Older func(error) bool
	Log   *slog.Logger
	// File keeps what is registered for the next daemon, if Boot is still the same; may be empty.
	File, Boot string

	Ctx context.Context // ends with the node
	Go  func(func())    // starts a goroutine, which ends soon after Ctx
}

// Directory is one node's part of the directory.
type Directory struct {
	cfg      Config
	table    table
	outbox   outbox
	contests contests

	mu      sync.Mutex
	view    *View              // Guarded by mu.
	changed chan struct{}      // closed when the view changes. Guarded by mu.
	state   dirState           // Guarded by mu.
	stable  []*View            // see settled. Guarded by mu.
	missing map[string]string  // nodes not heard from, and why not. Guarded by mu.
	partial map[string]partial // nodes not heard from about all users. Guarded by mu.
	left    map[string]bool    // see beginHearing. Guarded by mu.
	heard   chan struct{}      // closed when missing or partial changes. Guarded by mu.
	end     context.CancelFunc // ends recover. Guarded by mu.

	sweeping chan struct{} // closed when the sweep under way ends; nil: none. Guarded by mu.
	swept    time.Time     // when the last sweep began. Guarded by mu.
}

// partial has the users of whose names the node does not know all, and why not.
type partial map[string]string

// dirState is how far a node is with hearing what is registered with it.
//
//	          first call            heard from all
//	dormant ------------> hearing ------------------> serving
//	                         ^                          |
//	                         `--------------------------'
//	                           the list of nodes changed
//
// A node that was left no other one to hear from goes to serving at once. While hearing it
// registers claims of few names ([Directory.settled]). It is hearing, too, as long as it does not
// know all names of some users.
type dirState uint8

const (
	dormant dirState = iota
	hearing
	serving
)

func (s dirState) String() string { return [...]string{"dormant", "hearing", "serving"}[s] }

var dirTransitions = state.Table[dirState]{
	dormant: {hearing, serving},
	hearing: {serving},
	serving: {hearing},
}

// setState is the only writer of the state. mu is held.
func (d *Directory) setState(to dirState) {
	dirTransitions.Check(d.state, to)
	d.state = to
}

// New returns a node's directory. It goes on with what a daemon before it has left.
func New(cfg Config) *Directory {
	d := &Directory{
		cfg: cfg, view: cfg.View, changed: make(chan struct{}), heard: make(chan struct{}),
	}
	d.outbox.d, d.contests.d, d.table.journal = d, d, &journal{file: cfg.File, boot: cfg.Boot, log: cfg.Log}
	d.left = map[string]bool{}
	if nodes, left := d.table.restore(); nodes != nil {
		before := NewView(nodes)
		d.leave(left)
		d.leave(before.without(d.view))
		d.stable = []*View{before}
		if before.Digest == d.view.Digest {
			d.setState(serving)
		} else {
			d.table.discard() // the file's nodes are no longer the node's
			d.table.keep(d.belongs(d.view))
		}
	}
	return d
}

// View returns the list of nodes, and a channel that is closed when it changes.
func (d *Directory) View() (*View, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view, d.changed
}

// maxStable bounds the views that settled looks at.
const maxStable = 8

// SetView replaces the list of nodes.
func (d *Directory) SetView(v *View) {
	d.mu.Lock()
	if v.Digest == d.view.Digest {
		d.mu.Unlock()
		return
	}
	was := d.view
	d.view = v
	d.leave(was.without(v))
	close(d.changed)
	d.changed = make(chan struct{})
	if d.state == dormant { // which views followed on the journal's is not noted
		d.stable = nil
		d.table.discard()
	} else {
		if d.end != nil {
			d.end()
			d.end = nil
		}
		switch {
		case d.state == serving:
			d.stable = []*View{was}
			d.setState(hearing)
		case len(d.stable) > 0 && len(d.stable) < maxStable:
			d.stable = append(d.stable, was)
		default:
			d.stable = nil
		}
		d.beginHearing()
	}
	added := v.without(was)
	d.mu.Unlock()
	d.table.keep(d.belongs(v))
	if len(added) > 0 {
		d.cfg.Go(func() { d.introduce(v, added) })
	}
}

// belongs reports whether a registration is one of this node and of a node of the view.
func (d *Directory) belongs(v *View) func(Registration) bool {
	return func(r Registration) bool {
		return v.has(r.Owner.Node) && v.isDirectory(d.cfg.Node, r.Key)
	}
}

// wake begins to serve, with the first call of another node or of an own process.
func (d *Directory) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == dormant {
		d.setState(hearing)
		d.beginHearing()
	}
}

// maxLeft bounds the nodes that have left and are remembered.
const maxLeft = 4_096

// leave notes that nodes have left the list. mu is held.
func (d *Directory) leave(nodes []string) {
	for _, n := range nodes {
		if len(d.left) < maxLeft {
			d.left[n] = true
		}
	}
}

// beginHearing finds out from which nodes to hear, and begins. mu is held; the state is hearing. A
// node that was in none of the stable views can have no name that was registered in them: it is
// asked, and claims do not wait for that. Otherwise for one that had left the list: its names were
// registered here, and were dropped.
func (d *Directory) beginHearing() {
	d.missing, d.partial = map[string]string{}, map[string]partial{}
	for _, n := range d.view.nodes {
		known := len(d.stable) == 0 || d.left[n] ||
			slices.ContainsFunc(d.stable, func(v *View) bool { return v.has(n) })
		if known && len(d.view.nodes) > 1 { // its own processes, too, may have been registered here
			d.missing[n] = "it was not asked yet"
		}
	}
	ctx, end := context.WithCancel(d.cfg.Ctx)
	d.end = end
	view := d.view
	d.table.discard()
	if len(d.missing) == 0 {
		d.served()
	}
	if len(view.nodes) > 1 {
		d.cfg.Go(func() { d.recover(ctx, view, view.nodes) })
	}
}

// served ends the hearing. mu is held.
func (d *Directory) served() {
	d.setState(serving)
	d.stable = []*View{d.view}
	d.table.record(d.view.nodes, slices.Sorted(maps.Keys(d.left)))
	d.news()
}

// news wakes the calls that wait to be settled. mu is held.
func (d *Directory) news() {
	close(d.heard)
	d.heard = make(chan struct{})
}

// settled reports whether the node knows all that is registered of a name. It does in serving, and
// in hearing if it was a directory node of the name in each view since it was serving last: any two
// of a name's three nodes have one of those in common that have agreed to a claim. So it does not
// if it decides alone now, and was one of three. why names nodes that it has not heard from. mu is
// held.
func (d *Directory) settled(k Key) (ok bool, why string) {
	if d.state == serving {
		return true, ""
	}
	var list []string
	returned := false // reports whether one of these had left the list of nodes
	for n, w := range d.missing {
		list = append(list, fmt.Sprintf("%s (%s)", n, w))
		returned = returned || d.left[n]
	}
	for n, users := range d.partial {
		if w, lacks := users[k.User]; lacks {
			list = append(list, fmt.Sprintf("%s (%s)", n, w))
			returned = returned || d.left[n]
		}
	}
	if len(list) == 0 {
		return true, ""
	}
	if len(d.stable) > 0 && !returned && !slices.ContainsFunc(d.stable, func(v *View) bool {
		return !v.isDirectory(d.cfg.Node, k) || len(v.Set(k)) > 1 && len(d.view.Set(k)) == 1
	}) {
		return true, ""
	}
	slices.Sort(list)
	if more := len(list) - mostNamed; more > 0 {
		list = append(list[:mostNamed], fmt.Sprintf("%d others", more))
	}
	return false, "it has not heard since its start, or since the list of nodes changed, from " +
		strings.Join(list, ", ")
}

// mostNamed is how many nodes a reason names.
const mostNamed = 4

// settle waits until the node is settled for a name, as long as it is worthwhile. nodes is the
// caller's list of nodes, 0 for any. The answer says why not, or is Registered. A claim that is
// refused in any case does not wait: the node may not be settled before that claim has ended.
func (d *Directory) settle(ctx context.Context, k Key, nodes uint64, claim *Registration) Answer {
	d.wake()
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	var asked *Registration // the owner that was asked about the claim
	for {
		d.mu.Lock()
		view, heard := d.view, d.heard
		ok, why := d.settled(k)
		d.mu.Unlock()
		switch {
		case nodes != 0 && nodes != view.Digest:
			return Answer{Outcome: OtherNodes, Reason: "it has another list of nodes"}
		case !view.isDirectory(d.cfg.Node, k):
			return Answer{Outcome: OtherNodes, Reason: "it has another list of nodes"}
		case ok:
			return Answer{}
		}
		if claim != nil {
			// A node that has left the list may still say that its process has the name.
			if o, taken := d.table.conflict(*claim); taken && view.has(o.Owner.Node) && (asked == nil || *asked != o) {
				asked = &o
				if h, err := d.holds(ctx, 0, o); err == nil && h == HoldsName {
					return Answer{Outcome: Taken, Owner: o.Owner}
				}
			}
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return Answer{Outcome: Waiting, Reason: why}
		}
	}
}

// patience is how long a call of another node waits for what a node answers at once when it runs.
const patience = 2 * time.Second

// Close closes the file, when nothing of the node runs any more. The next daemon reads it.
func (d *Directory) Close() {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	d.table.journal.close()
}

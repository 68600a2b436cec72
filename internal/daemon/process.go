package daemon

import (
	"context"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// maxHandovers is how many descriptors a process may owe an answer for: one
// that never reads would otherwise pin them in the kernel.
const maxHandovers = 8

// process is one local process and its control connection.
type process struct {
	n    *Node
	conn *local.Conn
	cred unix.Cred
	user string // set before the first request is handled

	handing       chan struct{}
	introductions atomic.Uint64 // of links to it, begun

	id      atomic.Pointer[local.ProcessID] // nil before it registered
	session string                          // set before id
	member  *member                         // of a session that the node has; set before id
	program atomic.Pointer[string]          // nil: the node does not know it yet

	returning atomic.Bool // see rejoin

	counters linkCounters
	letGo    func() // see descriptors.hold
	full     bool   // it is told that there are too many
	told     toldLines

	mu      sync.Mutex
	exports map[uint32]local.ExportRequest
	changed chan struct{}           // closed and replaced when exports change
	granted map[*process]struct{}   // exporters of this node that have let this process in
	guests  map[local.ProcessID]int // imports under way of others than its own user and session
	links   int                     // that were introduced
	brought int                     // when it came back
	weight  int                     // bytes that its exports' permissions take here
}

// serveProcess takes a connection on.
func (n *Node) serveProcess(c *net.UnixConn) error {
	cred, err := unix.PeerCred(c)
	if err != nil {
		return err
	}
	if strings.HasPrefix(n.cfg.Socket, "@") && int(cred.UID) != os.Getuid() {
		// Such a socket has no file mode to say who may connect.
		return code.New(code.NoRights, "user %d may not use this node, it belongs to user %d", cred.UID, os.Getuid())
	}
	leave, ok := n.descriptors.admit(cred.UID)
	if !ok {
		local.Refuse(c, n.descriptors.foreign(), n.tooMany(cred.UID))
		return nil
	}
	letGo := n.descriptors.hold(heldByMember)
	left := n.descriptors.after(c)
	switch left {
	case none:
		letGo()
		leave()
		local.Refuse(c, n.descriptors.foreign(), n.outOfDescriptors())
		return nil
	case few:
		letGo()
		letGo = n.descriptors.hold(heldByTold)
	}
	p := &process{
		letGo: func() { letGo(); leave() }, full: left == few,
		n: n, cred: cred, handing: make(chan struct{}, maxHandovers),
		granted: map[*process]struct{}{}, guests: map[local.ProcessID]int{},
		exports: map[uint32]local.ExportRequest{}, changed: make(chan struct{}),
	}
	ready := make(chan struct{})
	p.conn = local.NewBoundedConn(c, n.descriptors.foreign(), func(ctx context.Context, m local.Method, body []byte, fds []int) (any, []int, error) {
		<-ready
		return p.handle(ctx, m, body, fds)
	})
	if !n.track(p.conn) {
		p.user = userName(cred.UID)
		close(ready)
		p.conn.Close()
		p.letGo()
		return nil
	}
	n.wg.Go(func() {
		// Looking a user up may take long, on a directory server: other connections are taken on meanwhile.
		p.user = userName(cred.UID)
		close(ready)
		if p.full {
			n.descriptors.hear(p.conn, n.administrates(caller{user: p.user, cred: &p.cred}))
		}
		<-p.conn.Done()
		n.untrack(p.conn)
		p.gone()
	})
	return nil
}

// userName is how rights name a user: by name, which is the same on all nodes
// of a cluster, where the number need not be.
func userName(uid uint32) string {
	s := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(s); err == nil && utf8.ValidString(u.Username) { // no message carries another one
		return u.Username
	}
	return s
}

// gone forgets the process: waiting imports of its buffers end.
func (p *process) gone() {
	p.uncount()
	p.letGo()
	id := p.id.Load()
	if id == nil {
		return
	}
	n := p.n
	n.bereave(p) // before anybody who dials it is refused
	var left []*process
	n.mu.Lock()
	if n.processes[id.PID] == p {
		delete(n.processes, id.PID)
	}
	for _, q := range n.processes {
		left = append(left, q)
	}
	for l, d := range n.links {
		if d.exporter == p {
			delete(n.links, l)
		}
	}
	n.mu.Unlock()
	for _, q := range left { // who imported from it
		q.mu.Lock()
		delete(q.granted, p)
		q.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links > 0 {
		n.driverLog.Info("links ended with their process", "pid", id.PID, "links", p.links, "why", p.conn.Err())
	}
	for e := range p.granted { // what was granted and never linked would stay there
		n.wg.Go(func() {
			ctx, stop := context.WithTimeout(context.Background(), timeout.Control)
			defer stop()
			e.withdraw(ctx, local.ReleaseRequest{Importer: *id})
		})
	}
	if m := p.member; m != nil {
		n.wg.Go(func() { m.leave(id.PID) })
	}
	n.log.Info("process left", "pid", id.PID, "realpid", p.cred.PID, "why", p.conn.Err())
}

// handle answers a process.
func (p *process) handle(ctx context.Context, m local.Method, body []byte, fds []int) (any, []int, error) {
	defer func() { closeAll(fds) }()
	switch m {
	case local.Register, local.Rejoin, local.Import, local.Connect:
	default: // which take none, and may wait
		closeAll(fds)
		fds = nil
	}
	if p.full && (m != local.Control || !p.n.administrates(caller{user: p.user, cred: &p.cred})) {
		return nil, nil, p.n.outOfDescriptors()
	}
	if m == local.Register {
		w, err := p.register(body)
		if err == nil {
			w.Pass = p.n.roll.join(p, w.Parent)
			p.count(fds)
			p.findProgram()
		}
		return w, nil, err
	}
	if m == local.Rejoin {
		r, err := local.Decode[local.RejoinRequest](body)
		if err != nil {
			return nil, nil, err
		}
		w, err := p.rejoin(r)
		if err == nil {
			p.count(fds)
			p.findProgram()
		}
		return w, nil, err
	}
	if m == local.Control {
		r, err := local.Decode[local.ControlRequest](body)
		if err != nil {
			return nil, nil, err
		}
		a, err := p.n.relay(ctx, caller{user: p.user, cred: &p.cred}, r)
		return a, nil, err
	}
	id := p.id.Load()
	if id == nil {
		return nil, nil, code.New(code.BadArg, "request %d before registration", m)
	}
	switch m {
	case local.Export, local.Unexport:
		r, err := local.Decode[local.ExportRequest](body)
		if err == nil {
			err = p.export(r, m == local.Export)
		}
		return local.Empty{}, nil, err
	case local.Again:
		r, err := local.Decode[local.AgainRequest](body)
		if err == nil {
			err = p.again(r)
		}
		return local.Empty{}, nil, err
	case local.Import:
		r, err := local.Decode[local.ImportRequest](body)
		if err != nil {
			return nil, nil, err
		}
		if !r.Link || r.Node != p.n.cfg.Name { // which may wait for ever
			closeAll(fds)
			fds = nil
		}
		return p.importBuffer(ctx, r, fds)
	case local.Connect:
		r, err := local.Decode[local.ConnectRequest](body)
		if err != nil {
			return nil, nil, err
		}
		return p.connect(ctx, r, fds)
	case local.Release:
		r, err := local.Decode[local.ReleaseRequest](body)
		if err == nil {
			r.Importer = *id
			err = p.release(ctx, r)
		}
		return local.Empty{}, nil, err
	case local.Forget:
		r, err := local.Decode[local.ForgetRequest](body)
		if err == nil {
			p.n.forgetLink(r.Link, p)
		}
		return local.Empty{}, nil, err
	case local.Departed:
		r, err := local.Decode[local.ProcessID](body)
		if err != nil {
			return nil, nil, err
		}
		gone, err := p.n.hasDeparted(ctx, r)
		return local.Departure{Departed: gone}, nil, err
	case local.SessionNodes:
		a, err := p.sessionNodes(ctx)
		return a, nil, err
	case local.Tell:
		r, err := local.Decode[local.LinkEvent](body)
		if err == nil {
			err = p.tell(r)
		}
		return local.Empty{}, nil, err
	case local.Spawn:
		r, err := local.Decode[local.SpawnRequest](body)
		if err != nil {
			return nil, nil, err
		}
		pid, err := p.spawn(ctx, r)
		return local.Spawned{PID: pid}, nil, err
	}
	return nil, nil, code.New(code.BadArg, "unknown request %d: the program's vmmc is newer than its daemon", m)
}

func (p *process) register(body []byte) (w local.Welcome, err error) {
	h, err := local.Decode[local.Hello](body)
	if err != nil {
		return w, err
	}
	if h.Version != local.Version {
		return w, code.New(code.Protocol, "the program speaks version %d of the local protocol, this daemon %d: build both from one release", h.Version, local.Version)
	}
	if len(h.Session) > maxSession {
		return w, code.New(code.BadArg, "the session's name has %d bytes, at most %d are possible", len(h.Session), maxSession)
	}
	n := p.n
	in := n.sessionNamed(h.Session)
	if in != nil && in.User != p.user {
		return w, code.New(code.NoRights, "session %q on node %q is another user's than %q: join another one (%s)", h.Session, n.cfg.Name, p.user, local.SessionEnv)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.id.Load() != nil {
		return w, code.New(code.BadArg, "this connection has registered already")
	}
	pid, parent, c := n.claim(p, h.Token)
	id := local.ProcessID{Node: n.cfg.Name, PID: pid, Incarnation: h.Incarnation}
	p.session = h.Session
	if in != nil {
		p.member = n.joinSession(in, p, pid, c)
	}
	p.id.Store(&id)
	n.processes[id.PID] = p
	n.log.Info("process joined", "pid", id.PID, "realpid", p.cred.PID, "user", p.user, "session", p.session)
	return local.Welcome{Process: id, Parent: parent, User: p.user, Hosts: n.nodeNames(), Introduces: true, InSession: p.member != nil}, nil
}

// nodeNames are the nodes as they are now, which is what a process knows for as long as it runs.
func (n *Node) nodeNames() []string {
	nodes := n.roster.Load().hosts
	hs := make([]string, len(nodes))
	for i, o := range nodes {
		hs[i] = o.Name
	}
	return hs
}

// export notes a buffer, or its end, and lets waiting imports look again.
func (p *process) export(r local.ExportRequest, begin bool) error {
	if begin && (r.Size <= 0 || r.Rights == 0 || r.Rights&^(local.MayRead|local.MayWrite) != 0) {
		return code.New(code.BadArg, "export of %d bytes with rights %#x", r.Size, r.Rights)
	}
	if err := local.CheckPermissions(r.Permit); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.keep(r, begin); err != nil {
		return err
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// closeAll closes descriptors that processes have sent.
func closeAll(fds []int) { foreign.Close(fds...) }

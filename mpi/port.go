package mpi

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// A port is a server of package call. Its name, which is the port's, has 128 random bits. Two leaders meet
// by two calls. The first one waits until Accept takes it, and brings the group of both jobs. The second one
// confirms that the other leader has got it: one that has given up has not, and Accept takes the next.

const portPrefix = ".mpi.port."

var portForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// maxPortClients is how many leaders may wait at a port.
const maxPortClients = 1024

// meetVersion is the version of what leaders tell each other.
const meetVersion = 1

// The steps of two leaders.
const (
	stepMeet    = 1
	stepConfirm = 2
)

type meetRequest struct {
	Version, Step uint32
	Size          uint32 // bytes of Nodes
	Reserved      uint32
	Nodes         [nodeproto.MaxGroup]byte // of the ranks that connect, as in VMMC_GROUP
}

type meetAnswer struct {
	Version uint32
	First   uint32 // the first rank of those that connect
	Size    uint32 // bytes of Group
	Unused  uint32
	Group   [nodeproto.MaxGroup]byte // of both jobs
}

// visitor is a leader that connects.
type visitor struct {
	gone  <-chan struct{} // it has given up, or ended
	nodes nodeproto.Group
	offer chan *meetAnswer // has room for one

	mu sync.Mutex
	// Guarded by mu.
	over      bool // it has confirmed, or the leader that accepts has given up
	confirmed chan struct{}
}

// port is one that this rank has open.
type port struct {
	name   string
	server *call.Server

	mu sync.Mutex
	// Guarded by mu.
	visitors map[context.Context]*visitor // by the contexts of their calls
	waiting  []*visitor
	more     chan struct{} // closed and replaced when there is another one
	closed   chan struct{} // ClosePort was called
	shut     bool
}

// OpenPort opens a port, by which [Comm.Accept] lets other jobs connect (MPI_Open_port, chapter Process
// Creation and Management). Its name is for Connect, at ranks of the same user and session, on any
// node. It is a random one, of at most 128 bytes, and no other port ever has it. The port ends with
// ClosePort, or Finalize. [ErrOther]: there is no node.
//
// Experimental: it may change in any release.
func (c *Comm) OpenPort(ctx context.Context) (_ string, err error) {
	defer func() { err = c.raise(err) }()
	const op = "MPI_Open_port"
	if ctx == nil {
		return "", fail(op, "ctx", ErrArg, "the context is nil")
	}
	j := c.j.home()
	p, err := j.process(ctx)
	if err != nil {
		return "", wrapAs(op, err)
	}
	pt := &port{visitors: map[context.Context]*visitor{}, more: make(chan struct{}), closed: make(chan struct{})}
	own := portPrefix + newGroupID()
	pt.name = p.Node().String() + "/" + own
	pt.server, err = call.Serve(ctx, p, own, pt.handle,
		call.MaxClients(maxPortClients), call.MaxSlots(1), call.Handlers(2*maxPortClients))
	if err != nil {
		return "", wrap(op, err)
	}
	j.bmu.Lock()
	defer j.bmu.Unlock()
	if j.ports == nil {
		j.ports = map[string]*port{}
	}
	j.ports[pt.name] = pt
	return pt.name, nil
}

// ClosePort closes a port that this rank has opened (MPI_Close_port). Accept and Connect that wait at it
// fail. Connections that were made stay. [ErrPort]: this rank has no such port.
//
// Experimental: it may change in any release.
func (c *Comm) ClosePort(name string) (err error) {
	defer func() { err = c.raise(err) }()
	const op = "MPI_Close_port"
	j := c.j.home()
	j.bmu.Lock()
	pt := j.ports[name]
	delete(j.ports, name)
	j.bmu.Unlock()
	if pt == nil {
		return fail(op, "port_name", ErrPort, "this rank has no port %.64q open", name)
	}
	return wrap(op, pt.close())
}

func (pt *port) close() error {
	pt.mu.Lock()
	if !pt.shut {
		pt.shut = true
		close(pt.closed)
	}
	pt.mu.Unlock()
	return pt.server.Close()
}

// handle serves a leader that connects.
func (pt *port) handle(ctx context.Context, q *meetRequest, a *meetAnswer) error {
	a.Version = meetVersion
	switch {
	case q.Version != meetVersion:
		return fmt.Errorf("the other job has version %d of connections, and this one %d", q.Version, meetVersion)
	case q.Step == stepConfirm:
		return pt.confirm(ctx)
	case q.Step != stepMeet || q.Size > uint32(len(q.Nodes)):
		return fmt.Errorf("step %d with %d bytes is none", q.Step, q.Size)
	}
	g, err := nodeproto.ParseGroup(nodeproto.Group{ID: newGroupID()}.String() + string(q.Nodes[:q.Size]))
	if err != nil {
		return err
	}
	if g.Size() > group.MaxSize {
		return fmt.Errorf("the other job has %d ranks, at most %d are possible", g.Size(), group.MaxSize)
	}
	v := &visitor{gone: ctx.Done(), nodes: g, offer: make(chan *meetAnswer, 1), confirmed: make(chan struct{})}
	pt.mu.Lock()
	if pt.visitors[ctx] != nil {
		pt.mu.Unlock()
		return errors.New("this client waits already")
	}
	pt.visitors[ctx] = v
	pt.waiting = append(pt.waiting, v)
	close(pt.more)
	pt.more = make(chan struct{})
	pt.mu.Unlock()
	context.AfterFunc(ctx, func() { pt.forget(ctx, v) })
	select {
	case offer, taken := <-v.offer:
		if taken {
			*a = *offer
			return nil
		}
		err = fmt.Errorf("the ranks of both jobs take more than %d bytes to name, or are more than %d", len(a.Group), group.MaxSize)
	case <-pt.closed:
		err = errors.New("the port is closed")
	case <-ctx.Done():
		err = ctx.Err()
	}
	pt.forget(ctx, v)
	return err
}

// forget drops a visitor.
func (pt *port) forget(ctx context.Context, v *visitor) {
	pt.mu.Lock()
	defer pt.mu.Unlock()
	if pt.visitors[ctx] == v {
		delete(pt.visitors, ctx)
	}
	pt.waiting = slices.DeleteFunc(pt.waiting, func(o *visitor) bool { return o == v })
}

// confirm notes that a visitor has got its offer.
func (pt *port) confirm(ctx context.Context) error {
	pt.mu.Lock()
	v := pt.visitors[ctx]
	delete(pt.visitors, ctx)
	pt.mu.Unlock()
	if v == nil || !v.end() {
		return errors.New("the leader that accepts has given up")
	}
	close(v.confirmed)
	return nil
}

// end reports whether it is the first call.
func (v *visitor) end() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	first := !v.over
	v.over = true
	return first
}

// next waits for a visitor.
func (pt *port) next(ctx context.Context) (*visitor, error) {
	for {
		pt.mu.Lock()
		more := pt.more
		if len(pt.waiting) > 0 && !pt.shut && ctx.Err() == nil {
			v := pt.waiting[0]
			pt.waiting = pt.waiting[1:]
			pt.mu.Unlock()
			return v, nil
		}
		pt.mu.Unlock()
		select {
		case <-more:
		case <-pt.closed:
			return nil, &Error{Arg: "port_name", Class: ErrPort, Err: errors.New("the port is closed")}
		case <-ctx.Done():
			return nil, &Error{Class: ErrCanceled, Err: fmt.Errorf("no job has connected: %w", context.Cause(ctx))}
		}
	}
}

// accept waits for a visitor, and gives it the group of both jobs.
func (pt *port) accept(ctx context.Context, own nodeproto.Group) (string, error) {
	for {
		v, err := pt.next(ctx)
		if err != nil {
			return "", err
		}
		g := nodeproto.Group{ID: newGroupID(), Parts: slices.Clone(own.Parts)}
		for _, part := range v.nodes.Parts {
			for range part.Count {
				g.Append(part.Node)
			}
		}
		text := g.String()
		if len(text) > len(meetAnswer{}.Group) || g.Size() > group.MaxSize {
			v.end()
			close(v.offer) // another one may have fewer ranks
			continue
		}
		a := &meetAnswer{Version: meetVersion, First: uint32(own.Size()), Size: uint32(len(text))}
		copy(a.Group[:], text)
		v.offer <- a
		select {
		case <-v.confirmed:
			return text, nil
		case <-v.gone:
		case <-pt.closed:
		case <-ctx.Done():
		}
		if !v.end() {
			return text, nil // it has confirmed at that moment
		}
	}
}

// checkPort reads a port's name.
func checkPort(name string) error {
	node, own, _ := strings.Cut(name, "/")
	id, found := strings.CutPrefix(own, portPrefix)
	if hosts.CheckName(node) != nil || !found || !portForm.MatchString(id) {
		return &Error{Arg: "port_name", Class: ErrPort, Err: fmt.Errorf("%.64q is no name of a port: give what OpenPort has returned", name)}
	}
	return nil
}

// findPort fails at once if no process has a port open.
func findPort(ctx context.Context, p *vmmc.Process, name string) error {
	if err := checkPort(name); err != nil {
		return err
	}
	for _, err := range p.Names(ctx, name) {
		if err == nil {
			return nil
		}
		c := ErrOther
		if errors.Is(err, vmmc.ErrNoSuchNode) {
			c = ErrPort
		}
		return &Error{Arg: "port_name", Class: c, Err: err}
	}
	return &Error{Arg: "port_name", Class: ErrPort, Err: fmt.Errorf("no process of this user and session has port %s open: it was closed, or its rank has ended", name)}
}

// visit connects to a port. It returns the group of both jobs, and the first rank of this one.
func visit(ctx context.Context, p *vmmc.Process, name string, own nodeproto.Group) (text string, first int, err error) {
	if err := findPort(ctx, p, name); err != nil {
		return "", 0, err
	}
	client, err := call.Dial[meetRequest, meetAnswer](ctx, p, name, call.Slots(1))
	if err != nil {
		return "", 0, portError(ctx, name, err)
	}
	defer func() { _ = client.Close() }()
	nodes := own.String()
	nodes = nodes[strings.LastIndexByte(nodes, ':')+1:]
	if len(nodes) > nodeproto.MaxGroup {
		return "", 0, fmt.Errorf("the ranks take %d bytes to name, at most %d are possible", len(nodes), nodeproto.MaxGroup)
	}
	for {
		text, first, err = meetOnce(ctx, client, nodes)
		if err == nil {
			err = checkAnswer(text, first, own)
		}
		if err == nil {
			err = client.Call(ctx, &meetRequest{Version: meetVersion, Step: stepConfirm}, &meetAnswer{})
			if refused := (*call.RemoteError)(nil); errors.As(err, &refused) && ctx.Err() == nil {
				continue // that Accept has given up meanwhile: wait for another one
			}
		}
		if err != nil {
			return "", 0, portError(ctx, name, err)
		}
		return text, first, nil
	}
}

// meetOnce waits for an Accept.
func meetOnce(ctx context.Context, client *call.Client[meetRequest, meetAnswer], nodes string) (text string, first int, err error) {
	q, a := &meetRequest{Version: meetVersion, Step: stepMeet, Size: uint32(len(nodes))}, &meetAnswer{}
	copy(q.Nodes[:], nodes)
	if err := client.Call(ctx, q, a); err != nil {
		return "", 0, err
	}
	if a.Version != meetVersion || a.Size > uint32(len(a.Group)) {
		return "", 0, fmt.Errorf("the answer has version %d and %d bytes", a.Version, a.Size)
	}
	return string(a.Group[:a.Size]), int(a.First), nil
}

// checkAnswer refuses a group that this job's ranks are no part of.
func checkAnswer(text string, first int, own nodeproto.Group) error {
	g, err := nodeproto.ParseGroup(text)
	if err != nil {
		return err
	}
	if first < 1 || first+own.Size() != g.Size() {
		return fmt.Errorf("the answer names %d ranks, from %d on this job's %d", g.Size(), first, own.Size())
	}
	for i := range own.Size() {
		if g.NodeOf(first+i) != own.NodeOf(i) {
			return fmt.Errorf("the answer has rank %d on node %q", i, g.NodeOf(first+i))
		}
	}
	return nil
}

// portError is the error of a leader that has not met the other one.
func portError(ctx context.Context, name string, err error) error {
	if ctx.Err() != nil {
		return &Error{Class: ErrCanceled, Err: fmt.Errorf("no rank accepts at port %s: %w", name, errors.Join(context.Cause(ctx), err))}
	}
	return &Error{Arg: "port_name", Class: ErrPort, Err: fmt.Errorf("connect to port %s: %w", name, err)}
}

// wrapAs names the call of an error of this package that has none.
func wrapAs(call string, err error) error {
	var e *Error
	if errors.As(err, &e) && e.Call == "" {
		return &Error{Call: call, Arg: e.Arg, Class: e.Class, Err: e.Err}
	}
	return wrap(call, err)
}

// Accept waits until another job connects to a port (MPI_Comm_accept, chapter Process Creation and
// Management), and makes an intercommunicator of the ranks of c and of those that connect. It is a
// collective of c. The port matters at rank root only, which has opened it. Several calls at a time, of
// several communicators, each take another job.
//
// A rank of the other job that ends is [ErrProcFailed] of the intercommunicator and of those that were
// made of it. It does not end this job, and WithFailed's function is not called for it. The other job
// is connected until [Comm.Disconnect] or Finalize: both wait for it.
//
// Errors: [ErrPort], at root: it has not opened the port, or it was closed; [ErrOther], at the other
// ranks: root has failed; [ErrCanceled]: the context has ended. Give the same end of time at all ranks:
// a rank of either job that has given up later than that, or has ended, is waited for.
//
// Experimental: it may change in any release.
func (c *Comm) Accept(ctx context.Context, port string, root int) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	return c.meetAt(ctx, "MPI_Comm_accept", root, func(p *vmmc.Process) (string, int, error) {
		j := c.j.home()
		j.bmu.Lock()
		pt := j.ports[port]
		j.bmu.Unlock()
		if pt == nil {
			return "", 0, &Error{Arg: "port_name", Class: ErrPort, Err: fmt.Errorf("this rank has no port %.64q open: OpenPort does", port)}
		}
		text, err := pt.accept(ctx, c.nodesOf(p))
		return text, 0, err
	})
}

// Connect connects to the port of another job (MPI_Comm_connect, chapter Process Creation and
// Management). It waits until that job calls [Comm.Accept], which says what else holds. The port
// matters at rank root only. [ErrPort], at root: no process has the port open, or it was closed.
//
// Experimental: it may change in any release.
func (c *Comm) Connect(ctx context.Context, port string, root int) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	return c.meetAt(ctx, "MPI_Comm_connect", root, func(p *vmmc.Process) (string, int, error) {
		return visit(ctx, p, port, c.nodesOf(p))
	})
}

// meetAt has the root meet another job, tells all ranks of the group of both, and joins them.
func (c *Comm) meetAt(
	ctx context.Context, op string, root int, meet func(p *vmmc.Process) (text string, first int, err error),
) (*Comm, error) {
	if ctx == nil {
		return nil, fail(op, "ctx", ErrArg, "the context is nil")
	}
	if err := c.intra(op); err != nil {
		return nil, err
	}
	if err := c.checkRoot(op, root); err != nil {
		return nil, err
	}
	var text string
	var first int
	var bad error
	if c.rank == root {
		p, err := c.j.home().process(ctx)
		if err == nil {
			text, first, err = meet(p)
		}
		bad = wrapAs(op, err)
	}
	text, first, err := c.tell(ctx, op, root, text, first, bad)
	if err != nil {
		return nil, err
	}
	return c.bridge(ctx, op, text, first, c.Name()+" connected")
}

// tell gives all ranks what the root has, or its error to the root and an error to the others.
func (c *Comm) tell(ctx context.Context, op string, root int, text string, first int, bad error) (string, int, error) {
	if bad != nil {
		text = ""
		if ctx.Err() != nil { // the others must hear of it, as far as they listen
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer stop()
		}
	}
	head := []int64{int64(len(text)), int64(first)}
	r := c.begin(op)
	if err := bcastPlan(c, op, head, root).run(ctx, r); err != nil {
		return "", 0, errors.Join(bad, err)
	}
	switch n := head[0]; {
	case bad != nil:
		return "", 0, bad
	case n == 0:
		return "", 0, fail(op, "", ErrOther, "the root, rank %d, has failed: its error says why", root)
	}
	b := make([]byte, head[0])
	copy(b, text)
	if err := bcastPlan(c, op, b, root).run(ctx, r); err != nil {
		return "", 0, err
	}
	return string(b), int(head[1]), nil
}

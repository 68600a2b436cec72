package daemon

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/ingress"
	"github.com/vmmc-go/vmmc/internal/daemon/members"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// registry is the processes of the node: those that have joined, those that may rejoin, and those
// that have ended. It gives out their logical pids.
type registry struct {
	n *Node

	// After sessions.mu, before members.Journal.mu and Node.mu. It also guards the count of pids in
	// unixSocket, and children.
	mu        sync.Mutex
	processes map[uint32]*process
	conns     map[*nodeproto.Conn]struct{}

	// awaitedEnds has the absent processes whose end awaitEnd awaits, one goroutine for each pid
	// however often its process comes and goes; nil for one that never joined. Guarded by mu.
	awaitedEnds map[uint32]*process

	journal     members.Journal
	endedTotals endedTotals
	shares      fairshare.Users // of the processors
}

// all returns the processes that have joined.
func (reg *registry) all() []*process {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return slices.Collect(maps.Values(reg.processes))
}

// remove removes a process and returns the others.
func (reg *registry) remove(p *process, pid uint32) (others []*process) {
	reg.mu.Lock()
	if reg.processes[pid] == p {
		delete(reg.processes, pid)
	}
	reg.mu.Unlock()
	return reg.all()
}

// closeConns closes all connections, when track adds none any more.
func (reg *registry) closeConns() {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for c := range reg.conns {
		c.Close()
	}
}

func (reg *registry) byPID(may func(*process) bool) []*process {
	all := slices.DeleteFunc(reg.all(), func(p *process) bool { return !may(p) })
	slices.SortFunc(all, func(a, b *process) int {
		return cmp.Compare(a.id.Load().PID, b.id.Load().PID)
	})
	return all
}

// track adds c until it ends. It reports false when the node is closing.
func (reg *registry) track(c *nodeproto.Conn) bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.n.isStopping() {
		return false
	}
	reg.conns[c] = struct{}{}
	return true
}

func (reg *registry) untrack(c *nodeproto.Conn) {
	reg.mu.Lock()
	delete(reg.conns, c)
	reg.mu.Unlock()
}

// lookup finds a process of this node.
func (reg *registry) lookup(pid uint32) (*process, error) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if p := reg.processes[pid]; p != nil {
		return p, nil
	}
	return nil, code.New(code.NoSuchProcess, "node %q has no process %d", reg.n.cfg.Name, pid)
}

// lookupExact returns a process and checks its incarnation.
func (reg *registry) lookupExact(ctx context.Context, id nodeproto.ProcessID) (*process, error) {
	if err := reg.journal.AwaitReturn(ctx, id.PID); err != nil {
		return nil, err
	}
	p, err := reg.lookup(id.PID)
	if err != nil {
		return nil, err
	}
	if p.id.Load().Incarnation != id.Incarnation {
		return nil, code.New(code.StaleImport,
			"process %d on node %q is another one than was imported from: import again", id.PID,
			reg.n.cfg.Name)
	}
	return p, nil
}

// awaitJoined is lookup that waits for a program which was started and has not joined.
func (reg *registry) awaitJoined(ctx context.Context, pid uint32) (*process, error) {
	if err := reg.journal.AwaitReturn(ctx, pid); err != nil {
		return nil, err
	}
	reg.mu.Lock()
	c := reg.n.children.byPID[pid]
	reg.mu.Unlock()
	if c != nil {
		enter := fairshare.Leave(ctx)
		select {
		case <-c.joined:
			enter()
		case <-c.ended:
			enter()
		case <-ctx.Done():
			enter()
			return nil, ctxCause(ctx, "process %d on node %q was spawned and has not joined", pid,
				reg.n.cfg.Name)
		}
	}
	p, err := reg.lookup(pid)
	if err != nil && c != nil {
		err = code.New(code.NoSuchProcess, "process %d on node %q, which was spawned, has ended", pid,
			reg.n.cfg.Name)
	}
	return p, err
}

// wouldAwait reports whether awaitJoined would wait.
func (reg *registry) wouldAwait(pid uint32) bool {
	expected := reg.journal.IsAbsent(pid)
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if c := reg.n.children.byPID[pid]; c != nil {
		select {
		case <-c.joined:
		case <-c.ended:
		default:
			return true
		}
	}
	return expected
}

// claim gives a process that joins its logical pid and its parent. The first one
// with a child's token is that child. Another program with the token has it from
// the child's environment and was not spawned; the child itself may join several
// times, and is a process of the same parent each time. reg.mu is held.
func (reg *registry) claim(
	p *process, token string,
) (pid uint32, parent nodeproto.ProcessID, c *child) {
	c = reg.n.children.byToken[token]
	if c == nil || c.runAs.UID != p.cred.UID {
		return reg.freePID(), nodeproto.ProcessID{}, nil
	}
	select {
	case <-c.joined:
		if c.real != p.cred.PID {
			return reg.freePID(), nodeproto.ProcessID{}, nil
		}
		return reg.freePID(), c.parent, c
	default:
		c.real = p.cred.PID
		close(c.joined) // its waiters take mu, and find it registered
		return c.pid, c.parent, c
	}
}

// freePID returns an unused logical pid. reg.mu is held.
func (reg *registry) freePID() uint32 {
	index := reg.n.cluster.Place()
	for {
		pid := reg.n.unix.pid(index) // a full round of numbers later they begin again
		if reg.processes[pid] == nil && reg.n.children.byPID[pid] == nil && !reg.journal.IsAbsent(pid) {
			return pid
		}
	}
}

// keepPIDs keeps the count of pids with the sessions, whose processes have them.
func (reg *registry) keepPIDs(f *os.File) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if reg.n.unix != nil { // else the node does not run
		reg.n.unix.keepIn(f)
	}
}

// severAll asks all processes at once to end links.
func (reg *registry) severAll(
	ctx context.Context, r nodeproto.SeverRequest,
) (links int, silent []uint32) {
	ctx, stop := context.WithTimeout(ctx, timeout.Ping)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, p := range reg.all() {
		all.Go(func() {
			s, fds, err := nodeproto.Ask[nodeproto.Severed](ctx, p.conn, nodeproto.Sever, r, nil)
			closeAll(fds) // an honest process sends none
			if err = p.answerError(err); errors.Is(err, code.NoSuchProcess) {
				return // its links went with it
			}
			mu.Lock()
			defer mu.Unlock()
			if links += max(s.Links, 0); err != nil {
				silent = append(silent, p.id.Load().PID)
			}
		})
	}
	all.Wait()
	return links, silent
}

// accept serves local processes.
func (reg *registry) accept() {
	for {
		c, err := reg.n.unix.l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			reg.n.descriptors.LogAcceptError(err)
			time.Sleep(10 * time.Millisecond) // out of descriptors: processes may close some
			continue
		}
		if err := reg.serve(c); err != nil {
			reg.n.logs.Server.Warn("a process was refused", "err", err)
			nodeproto.HangUp(c)
		}
	}
}

// serve starts to serve a connection.
func (reg *registry) serve(c *net.UnixConn) error {
	n := reg.n
	cred, err := unix.PeerCred(c)
	if err != nil {
		return err
	}
	if strings.HasPrefix(n.cfg.Socket, "@") && int(cred.UID) != os.Getuid() {
		// An abstract socket has no file mode that limits the users who may connect.
		return code.New(code.NoRights, "user %d may not use this node, it belongs to user %d", cred.UID,
			os.Getuid())
	}
	leave, ok := n.descriptors.AdmitUser(cred.UID)
	if !ok {
		nodeproto.Refuse(c, n.descriptors.PerUserReceived(), n.descriptors.TooManyConns(cred.UID))
		return nil
	}
	letGo := n.descriptors.ReserveFor(ingress.HeldByMember)
	left := n.descriptors.HeadroomAfter(c)
	switch left {
	case ingress.Exhausted:
		letGo()
		leave()
		nodeproto.Refuse(c, n.descriptors.PerUserReceived(), n.descriptors.RunOut())
		return nil
	case ingress.ReserveOnly:
		letGo()
		letGo = n.descriptors.ReserveFor(ingress.HeldByRefused)
	}
	share, leaveShare := reg.shares.Join(cred.UID)
	p := &process{
		releaseDescriptors: func() { letGo(); leave(); leaveShare() }, refusedFull: left == ingress.ReserveOnly,
		n: n, cred: cred, pendingHandovers: make(chan struct{}, maxHandovers),
		grantors: map[*process]struct{}{},
	}
	p.counters.p, p.exports = p, newExportTable(p)
	ready, refused := make(chan struct{}), false // refused is set before ready is closed
	p.conn = nodeproto.NewBoundedConn(c, n.descriptors.PerUserReceived(), share, func(ctx context.Context,
		m nodeproto.Method, body []byte, fds []int,
	) (any, []int, error) {
		if <-ready; refused { // it came while the node closes, which does not wait for it
			closeAll(fds)
			return nil, nil, code.New(code.Closed, "node %q is closing", n.cfg.Name)
		}
		return p.handle(ctx, m, body, fds)
	})
	if !reg.track(p.conn) {
		p.user = users.Name(cred.UID)
		refused = true
		close(ready)
		p.conn.Close()
		p.releaseDescriptors()
		return nil
	}
	n.wg.Go(func() {
		// A user lookup on a directory server may take long: it runs here, so that other
		// connections are accepted meanwhile.
		p.user = users.Name(cred.UID)
		close(ready)
		if p.refusedFull {
			n.descriptors.AdmitRefused(p.conn, n.accounts.Administrates(users.Caller{
				User: p.user,
				Cred: &p.cred,
			}))
		}
		<-p.conn.Lost()
		p.lost() // its requests may wait for other processes still
		<-p.conn.Done()
		reg.untrack(p.conn)
		p.disconnected()
	})
	return nil
}

// noteDeparture records the end of a process's connection, if this daemon did not end it.
func (reg *registry) noteDeparture(p *process) {
	id := p.id.Load()
	if id == nil || reg.n.isStopping() { // the next daemon asks the kernel
		return
	}
	reg.journal.NoteDeparture(*id, p.conn.Err())
}

// hasDeparted reports whether a process is known to have ended. The node that is asked may not
// know.
func (reg *registry) hasDeparted(ctx context.Context, id nodeproto.ProcessID) (bool, error) {
	if id.Node == reg.n.cfg.Name {
		return reg.journal.HasDeparted(id), nil
	}
	o, err := reg.n.cluster.Peer(id.Node)
	if err != nil {
		return false, err
	}
	return o.Departed(ctx, id)
}

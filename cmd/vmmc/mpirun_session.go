package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/cmd/vmmc/internal/mpijob"
	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// runInSession runs the job in its session.
func (m *mpiRun) runInSession(ctx context.Context, hosts []mpijob.Host) error {
	a, err := m.where.Open(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	o := &runOptions{request: &nodev1.RunRequest{Session: m.Session, Hosts: []byte(env.Get(nodeproto.HostsEnv))}}
	at, err := m.placeInSession(ctx, a, o, hosts)
	if err != nil {
		return err
	}
	o.adapt, o.outlast = m.adapt, timeout.Restarted
	o.ended, o.output = m.noteEnd, m.outputOf
	over := make(chan struct{})
	var beside sync.WaitGroup
	attending, leave := context.WithCancel(ctx)
	defer beside.Wait()
	defer leave() // what ranks have left running ends too
	o.grouped = func(group uint32) {
		for _, n := range a.All { // ranks may spawn on other nodes
			beside.Go(func() { attendGroup(attending, n, m.Session, group) })
		}
	}
	in := &inputSession{session: m.Session, in: os.Stdin, out: m.out}
	input, stopInput := context.WithCancelCause(ctx)
	defer stopInput(nil)
	o.begun = func(rank int, s started) {
		m.noteStart()
		if rank == m.Stdin { // the node hangs up a rank to which no tool attends, and others may start late
			in.started = s
			beside.Go(func() { in.attend(input, stopInput) })
		}
	}
	all, early, err := m.startInSession(ctx, o, at)
	if err != nil {
		if errors.Is(err, code.NoSuchSession) {
			err = serve.Flag("session", m.Session, err)
		}
		return errors.Join(err, o.undo(ctx, all))
	}
	p := &signalForwarder{command: "vmmc mpirun", a: a, session: m.Session, group: all[0].p.GetGroup()}
	m.kill = func(s syscall.Signal) { p.send(attending, s) }
	for _, s := range early {
		m.noteSignal(s, true)
	}
	m.out.broken = func(name string, err error) {
		beside.Go(func() { o.unread(ctx, p, over, name, err) })
	}
	beside.Go(func() {
		for {
			select {
			case s := <-m.told:
				m.noteSignal(s, true)
			case <-over:
				return
			}
		}
	})
	if m.Stdin != mpijob.NoStdin {
		beside.Go(func() { in.pass(input, stopInput) })
		beside.Go(func() {
			<-over
			stopInput(nil)
		})
	}
	defer close(over)
	_, err = o.wait(ctx, all, m.out)
	return err
}

// startInSession starts the ranks. A signal that ends the job ends the start: a node may take long to
// answer. It returns the signals that the ranks get once they run.
func (m *mpiRun) startInSession(ctx context.Context, o *runOptions, at []*ask.Node) (all []started, early []os.Signal, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	begun, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		for {
			select {
			case s := <-m.told:
				n, _ := s.(syscall.Signal)
				if isUserSignal(n) {
					early = append(early, s)
					continue
				}
				m.mu.Lock()
				m.by = n
				m.mu.Unlock()
				stop()
				return
			case <-begun:
				return
			}
		}
	}()
	all, err = o.start(ctx, at)
	close(begun)
	<-heard
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == 0 {
		return all, early, err
	}
	if err == nil {
		err = fmt.Errorf("%d ranks had begun", len(all))
	}
	return all, nil, &serve.StatusError{Status: 128 + int(m.by), Err: fmt.Errorf("%s while ranks were started, they are ended: %w", signalName(int(m.by)), err)}
}

// attendGroup attends to a run group on a node: when all such calls have ended, also because this tool
// was killed, the node ends the group.
func attendGroup(ctx context.Context, n *ask.Node, session string, group uint32) {
	// The first pauses are shorter than a lease: a node that stays away is asked less and less often.
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	for pause := shortest; ctx.Err() == nil; pause = min(2*pause, longest) {
		began := time.Now()
		_, err := n.Client.Attend(ctx, connect.NewRequest(&nodev1.AttendRequest{Session: session, Group: group}))
		if err = ask.ErrorOf(n, err); errors.Is(err, code.NoSuchSession) || errors.Is(err, code.NoSuchProcess) {
			return // or it is older than leases
		}
		if time.Since(began) > longest { // it attended
			pause = shortest
		}
		timeout.Sleep(ctx, pause)
	}
}

// placeInSession says on which node each rank runs, and has the options say of which group it is.
func (m *mpiRun) placeInSession(ctx context.Context, a *ask.Cluster, o *runOptions, hosts []mpijob.Host) (at []*ask.Node, err error) {
	if len(hosts) == 0 {
		o.count = maxRun // the nodes of the session
		nodes, err := o.targetNodes(ctx, a)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			hosts = append(hosts, mpijob.Host{Name: n.Name, Slots: 1})
		}
	}
	if m.NeedsLoads() {
		list, err := a.First.Hosts(ctx, nodev1.Look_LOOK_PING)
		if err != nil {
			return nil, fmt.Errorf("--map-by load: ask for the nodes' load: %w", err)
		}
		m.Loads = map[string]float64{}
		for _, h := range list {
			if h.GetReachable() {
				m.Loads[h.GetName()] = float64(h.GetPing().GetLoad_1MMillis()) / 1000
			}
		}
	}
	if m.ranks, err = m.Place(hosts); err != nil {
		return nil, &serve.StatusError{Status: serve.Misused, Err: err}
	}
	m.universe = m.Universe(hosts, len(m.ranks))
	o.count = len(m.ranks)
	names := make([]string, o.count)
	for rank, r := range m.ranks {
		names[rank] = r.Host
	}
	if at, err = findNodes(a, names); err != nil {
		return nil, err
	}
	if o.count == 1 {
		return at, nil
	}
	o.group.ID = newGroupID()
	for rank, n := range at {
		o.group.Append(n.Name)
		o.group.ranks = append(o.group.ranks, rank)
	}
	if n := len(o.group.String()); n > nodeproto.MaxGroup {
		return nil, code.New(code.BadConfig, "the nodes of %d ranks do not fit into %s (%d bytes, at most %d): give nodes slots, so that their ranks follow each other",
			o.count, nodeproto.GroupEnv, n, nodeproto.MaxGroup)
	}
	return at, nil
}

// findNodes finds nodes, of which one may be named again.
func findNodes(a *ask.Cluster, names []string) (all []*ask.Node, err error) {
	each := slices.Compact(slices.Sorted(slices.Values(names)))
	found, err := a.Find(each)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		i, _ := slices.BinarySearch(each, name)
		all = append(all, found[i])
	}
	return all, nil
}

// adapt makes the request for a rank.
func (m *mpiRun) adapt(rank int, r *nodev1.RunRequest) {
	p := m.ranks[rank].Program
	r.Path, r.Args, r.Directory = []byte(p.Path), nil, []byte("/")
	if p.Dir != "" {
		r.Directory = []byte(p.Dir)
	}
	for _, arg := range p.Args {
		r.Args = append(r.Args, []byte(arg))
	}
	own := append(slices.Concat(m.Env, p.Env), fmt.Sprintf("%s=%d", nodeproto.AppNumEnv, m.ranks[rank].App))
	if m.EnvAll {
		own = slices.Concat(slices.DeleteFunc(env.All(), func(v string) bool { return strings.HasPrefix(v, "VMMC") }), own)
	}
	if len(m.ranks) == 1 {
		own = append(own, oneRankEnv()...)
	}
	own = append(own, m.rankEnv(rank)...)
	variables := make([][]byte, 0, len(own))
	for _, v := range own {
		variables = append(variables, []byte(v))
	}
	r.Env = slices.Concat(variables, r.GetEnv())
	r.Bound = true
	turn, processors := m.Bind.Turn(m.ranks[rank].Local)
	r.Turn = uint32(turn)
	for _, n := range processors {
		r.Processors = append(r.Processors, uint32(n))
	}
	if rank == m.Stdin {
		r.Input, r.Follow = true, false
	}
}

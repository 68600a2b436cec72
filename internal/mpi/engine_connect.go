package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
)

// offer is what ranks tell each other first.
type offer struct {
	Version uint32
	Forced  uint32
	PID     uint32 // of the process, on the rank's node
	IDs     [len(moduleNames)]uint32
}

const version = 5

var moduleNames = [...]string{"shm", "tcp", "via"}

// The modules' places in that list.
const (
	moduleShm = iota
	moduleTCP
	moduleVIA
)

// choice is which modules ranks use: those of the same node, and those of different ones.
type choice struct {
	near, far int
	forced    bool
}

// code is what ranks tell each other of their choices.
func (c choice) code() uint32 {
	if !c.forced {
		return 0
	}
	return uint32(1 | c.near<<8 | c.far<<16)
}

// choose takes what the option or the environment says.
func choose(module string) (choice, error) {
	if module == "" {
		return choice{near: moduleShm, far: moduleTCP}, nil
	}
	near, far, two := strings.Cut(module, ",")
	if !two {
		far = near
	}
	c := choice{slices.Index(moduleNames[:], near), slices.Index(moduleNames[:], far), true}
	if c.near < 0 || c.far < 0 {
		return c, Fail(ErrArg, "module", "there is no module %q: choose %q, or two of them as \"shm,via\"", module, moduleNames)
	}
	return c, nil
}

// connectsAtOnce bounds how many ports import something at a time.
const connectsAtOnce = 16

// uses returns which module a pair of ranks uses, by the node of the other one.
func (e *Engine) uses(rank int, c choice) int {
	if e.g.Node(rank) == e.p.Node() {
		return c.near
	}
	return c.far
}

// connect makes the ports of all other ranks.
func (e *Engine) connect(ctx context.Context, chosen choice) error {
	mine := offer{Version: version, Forced: chosen.code()}
	if e.size > 1 {
		mine.PID = uint32(e.p.ID().PID)
	}
	for rank := range e.size {
		pr := &peer{e: e, rank: rank}
		e.peers = append(e.peers, pr)
		if rank == e.rank {
			continue // it has no port
		}
		i := e.uses(rank, chosen)
		if i == moduleShm && e.g.Node(rank) != e.p.Node() {
			return Fail(ErrArg, "module", "rank %d is on node %v, which module shm does not reach: choose tcp, or none", rank, e.g.Node(rank))
		}
		if mine.IDs[i] == 0 {
			id, err := e.modules[i].Offer()
			if err != nil {
				return &Error{ErrOther, "", err}
			}
			mine.IDs[i] = id
		}
	}
	if e.size == 1 {
		return nil
	}
	all, err := group.Exchange(ctx, e.g, mine)
	if err != nil {
		return &Error{ErrOther, "", err}
	}
	for i, m := range e.modules {
		if mine.IDs[i] == 0 {
			continue
		}
		if a, ok := m.(Awaiter); ok {
			e.awaiters = append(e.awaiters, &awaiter{Awaiter: a, wakeUp: make(chan struct{}, 1)})
		}
		e.callees = append(e.callees, m)
	}
	e.ids = make([]vmmc.ProcessID, e.size)
	for rank, o := range all {
		e.ids[rank] = vmmc.ProcessID{Node: e.g.Node(rank), PID: vmmc.PID(o.PID)}
	}
	errs := make([]error, e.size)
	for rank, o := range all {
		if rank == e.rank {
			continue
		}
		if o.Version != version || o.Forced != mine.Forced {
			errs[rank] = Fail(ErrArg, "module", "rank %d has another version, or another module is forced there", rank)
			continue
		}
		errs[rank] = e.makePort(rank, e.uses(rank, chosen), o)
	}
	if err := errors.Join(errs...); err != nil {
		return &Error{ErrOther, "", err}
	}
	for _, pr := range e.peers {
		if pr.port != nil && pr.port.Polled() {
			e.polling = true
			_, awaits := e.modules[e.uses(pr.rank, chosen)].(Awaiter)
			e.words = e.words || !awaits
		}
	}
	// A rank that is first here may call another one before that looks: the call stays.
	return nil
}

func (e *Engine) makePort(rank, module int, o offer) error {
	pr := e.peers[rank]
	pr.name = e.ids[rank].String()
	pr.module = e.modules[module].Name()
	e.mu.Lock()
	defer e.mu.Unlock()
	port, err := e.modules[module].Connect(rank, o.IDs[module], pr)
	if err != nil {
		return fmt.Errorf("rank %d, module %s: %w", rank, pr.module, err)
	}
	pr.port = port
	return nil
}

// activate has the engine look at the port of a peer, and wait for its words. mu is held.
func (e *Engine) activate(pr *peer) {
	active := append(slices.Clone(*e.active.Load()), pr)
	e.active.Store(&active)
	if pr.port.Polled() {
		polled := append(slices.Clone(*e.polled.Load()), pr.port)
		e.polled.Store(&polled)
	}
	e.rewatch()
	e.watching, e.rewatch = context.WithCancel(e.ctx)
}

// want has a peer's port connect. mu is held.
func (pr *peer) want() {
	if pr.port != nil && pr.err == nil {
		pr.wanted = true
		pr.port.Want()
	}
}

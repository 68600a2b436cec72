package daemon

import (
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/supervise"
)

// expect adds a program that p starts itself. It counts as a child of the node until unexpect.
func (cs *children) expect(
	p *process, r nodeproto.ExpectRequest,
) (e nodeproto.Expected, err error) {
	if r.Name != "" {
		if err := nodeproto.CheckName(r.Name); err != nil {
			return e, err
		}
	}
	if r.Session != "" { // bounds its length: kept names are remembered under it
		if err := supervise.CheckSession(r.Session); err != nil {
			return e, err
		}
	}
	if _, err := p.mayJoin(r.Session); err != nil {
		return e, err
	}
	n := cs.n
	c := newChild(order{session: r.Session, runAs: users.Account{UID: p.cred.UID, Name: p.user}})
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	c.executed = true // no start of another program waits for it
	c.pid = n.registry.freePID()
	if err := cs.add(c); err != nil {
		return e, err
	}
	id := nodeproto.ProcessID{Node: n.cfg.Name, PID: c.pid}
	if r.Name != "" {
		k := names.Key{Scope: names.Scope{User: p.user, Session: r.Session}, Name: r.Name}
		if err := n.names.Reserve(k, id); err != nil {
			cs.drop(c)
			return e, err
		}
	}
	if p.expected == nil {
		p.expected = map[uint32]*child{}
	}
	p.expected[c.pid] = c
	return nodeproto.Expected{Process: id, Token: c.token}, nil
}

// unexpect ends the expectation of a program, if p has it.
func (cs *children) unexpect(p *process, pid uint32) {
	cs.n.registry.mu.Lock()
	c := p.expected[pid]
	delete(p.expected, pid)
	cs.n.registry.mu.Unlock()
	if c != nil {
		cs.forget(c)
		close(c.ended)
	}
}

// unexpectAll is unexpect for all programs of a process whose connection has ended.
func (cs *children) unexpectAll(p *process) {
	cs.n.registry.mu.Lock()
	var pids []uint32
	for pid := range p.expected {
		pids = append(pids, pid)
	}
	cs.n.registry.mu.Unlock()
	for _, pid := range pids {
		cs.unexpect(p, pid)
	}
}

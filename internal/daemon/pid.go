package daemon

import (
	"os"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// claim gives a process that joins its logical pid and its parent. The first one
// with a child's token is that child. Another program with the token has it from
// the child's environment and was not spawned; the child itself may join several
// times, and is a process of the same parent each time. With mu.
func (n *Node) claim(p *process, token string) (pid uint32, parent nodeproto.ProcessID, c *child) {
	c = n.children.byToken[token]
	if c == nil || c.runAs.uid != p.cred.UID {
		return n.freePID(), nodeproto.ProcessID{}, nil
	}
	select {
	case <-c.joined:
		if c.real != p.cred.PID {
			return n.freePID(), nodeproto.ProcessID{}, nil
		}
		return n.freePID(), c.parent, c
	default:
		c.real = p.cred.PID
		close(c.joined) // its waiters take mu, and find it registered
		return c.pid, c.parent, c
	}
}

// freePID returns an unused logical pid. mu is held.
func (n *Node) freePID() uint32 {
	index := n.cluster.place()
	for {
		pid := n.unix.pid(index) // a full round of numbers later they begin again
		if n.processes[pid] == nil && n.children.byPID[pid] == nil && !n.journal.isAbsent(pid) {
			return pid
		}
	}
}

// keepPIDs keeps the count of pids with the sessions, whose processes have them.
func (n *Node) keepPIDs(f *os.File) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unix != nil { // else the node does not run
		n.unix.keepIn(f)
	}
}

// misplacedProgram is a program of a session that has a logical pid which this node does
// not give out: the node had another place in the hosts file when it began.
type misplacedProgram struct {
	session string
	pid     uint32
}

// checkPlace refuses to start in another place while there are such programs: the
// node that has their place now would give out their pids again.
func (t *sessions) checkPlace() error {
	f := t.misplaced.Load()
	if f == nil {
		return nil
	}
	return code.New(code.BadConfig, "node %q is in place %d of the hosts file, and process %d of "+
		"its session %q has run since it was in place %d: put it there again, with lines \"-\" before "+
		"it where others were removed, until the session is deleted",
		t.n.cfg.Name, t.n.cluster.place()+1, f.pid, f.session, f.pid/block+1)
}

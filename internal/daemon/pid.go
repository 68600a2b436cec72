package daemon

import (
	"os"

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

package daemon

import (
	"os"

	"github.com/vmmc-go/vmmc/internal/local"
)

// claim gives a process that joins its logical pid and its parent. The first one
// with a child's token is that child. Another program with the token has it from
// the child's environment and was not spawned; the child itself may join several
// times, and is a process of the same parent each time. With mu.
func (n *Node) claim(p *process, token string) (pid uint32, parent local.ProcessID, c *child) {
	c = n.children.byToken[token]
	if c == nil || c.who.uid != p.cred.UID {
		return n.freePID(), local.ProcessID{}, nil
	}
	select {
	case <-c.joined:
		if c.real != p.cred.PID {
			return n.freePID(), local.ProcessID{}, nil
		}
		return n.freePID(), c.parent, c
	default:
		c.real = p.cred.PID
		close(c.joined) // who waits for it looks under mu, and finds it registered
		return c.pid, c.parent, c
	}
}

// place is where the node stands in the hosts file, by which its pids differ
// from those of others.
func (n *Node) place() int {
	for i, h := range n.cfg.Hosts {
		if h.Name == n.cfg.Name {
			return i
		}
	}
	return 0
}

// ownPID says whether a pid is one that this node gives out.
func (n *Node) ownPID(pid uint32) bool { return pid%block != 0 && int(pid/block) == n.place() }

// freePID is a logical pid that nobody has. With mu.
func (n *Node) freePID() uint32 {
	index := n.place()
	for {
		pid := n.unix.pid(index) // a full round of numbers later they begin again
		if n.processes[pid] == nil && n.children.byPID[pid] == nil {
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

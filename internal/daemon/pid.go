package daemon

import "github.com/vmmc-go/vmmc/internal/local"

// claim gives a process that joins its logical pid and its parent. The first one
// with a child's token is that child. Another program with the token has it from
// the child's environment and was not spawned; the child itself may join several
// times, and is a process of the same parent each time. With mu.
func (n *Node) claim(p *process, token string) (pid uint32, parent local.ProcessID) {
	c := n.children.byToken[token]
	if c == nil || c.who.uid != p.cred.UID {
		return n.freePID(), local.ProcessID{}
	}
	select {
	case <-c.joined:
		if c.real != p.cred.PID {
			return n.freePID(), local.ProcessID{}
		}
		return n.freePID(), c.parent
	default:
		c.real = p.cred.PID
		close(c.joined) // who waits for it looks under mu, and finds it registered
		return c.pid, c.parent
	}
}

// freePID is a logical pid that nobody has. With mu.
func (n *Node) freePID() uint32 {
	index := 0
	for i, h := range n.cfg.Hosts {
		if h.Name == n.cfg.Name {
			index = i
		}
	}
	for {
		pid := n.unix.pid(index) // a full round of numbers later they begin again
		if n.processes[pid] == nil && n.children.byPID[pid] == nil {
			return pid
		}
	}
}

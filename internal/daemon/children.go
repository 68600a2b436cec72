package daemon

import (
	"context"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// maxChildren bounds the programs of one user that a node has started and that
// still run.
const maxChildren = 1024

// maxBeginning bounds those of them that have not executed their program yet, also because the kernel waits
// for a file server and they cannot be killed.
const maxBeginning = 64

// children are the programs that a node has started and that still run. With the
// node's mu.
type children struct {
	byPID   map[uint32]*child
	byToken map[string]*child
	begun   chan struct{} // closed and replaced when one has begun, or never will
}

// beginChild adds a child and runs it, when fewer than maxBeginning of the user's are about to begin.
func (n *Node) beginChild(ctx context.Context, c *child) error {
	for {
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			return code.New(code.Unreachable, "node %q is stopping", n.cfg.Name)
		}
		if n.children.beginning(c.who.uid) < maxBeginning {
			c.pid = n.freePID()
			err := n.children.add(c)
			if err == nil {
				n.wg.Go(func() { n.run(c) })
			}
			n.mu.Unlock()
			return err
		}
		begun := n.children.begun
		n.mu.Unlock()
		select {
		case <-begun:
		case <-ctx.Done():
			return code.New(code.Timeout, "start %s on node %q: %d programs of user %q are about to begin, and their files or directories do not answer (%v)", c.Path, n.cfg.Name, maxBeginning, c.who.name, context.Cause(ctx))
		}
	}
}

// beginning counts a user's children that have not executed their programs. With mu.
func (cs *children) beginning(uid uint32) (n int) {
	for _, o := range cs.byPID {
		if o.who.uid == uid && o.in == nil && !o.begun {
			n++
		}
	}
	return n
}

// began tells those who wait in beginChild. With mu.
func (cs *children) began() {
	if cs.begun == nil { // none was added yet
		return
	}
	close(cs.begun)
	cs.begun = make(chan struct{})
}

func (cs *children) add(c *child) error {
	if cs.byPID == nil {
		cs.byPID, cs.byToken, cs.begun = map[uint32]*child{}, map[string]*child{}, make(chan struct{})
	}
	same := 0
	for _, o := range cs.byPID {
		if o.who.uid == c.who.uid {
			same++
		}
	}
	if same >= maxChildren {
		return code.New(code.NoMem, "user %q runs %d spawned programs on this node, which is the most: let some end", c.who.name, same)
	}
	cs.byPID[c.pid], cs.byToken[c.token] = c, c
	return nil
}

// drop is forget of a child that nothing waits for yet. With mu.
func (cs *children) drop(c *child) {
	delete(cs.byPID, c.pid)
	delete(cs.byToken, c.token)
	cs.began()
}

// forget ends a child's claim to its logical pid.
func (n *Node) forget(c *child) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.children.drop(c)
}

// await is lookup that waits for a program which was started and has not joined.
func (n *Node) await(ctx context.Context, pid uint32) (*process, error) {
	if err := n.roll.await(ctx, pid); err != nil {
		return nil, err
	}
	n.mu.Lock()
	c := n.children.byPID[pid]
	n.mu.Unlock()
	if c != nil {
		select {
		case <-c.joined:
		case <-c.ended:
		case <-ctx.Done():
			return nil, ctxCause(ctx, "process %d on node %q was spawned and has not joined", pid, n.cfg.Name)
		}
	}
	p, err := n.lookup(pid)
	if err != nil && c != nil {
		err = code.New(code.NoSuchProcess, "process %d on node %q, which was spawned, has ended", pid, n.cfg.Name)
	}
	return p, err
}

// awaits says whether await would wait.
func (n *Node) awaits(pid uint32) bool {
	n.roll.mu.Lock()
	expected := n.roll.expected[pid] != nil
	n.roll.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.children.byPID[pid]; c != nil {
		select {
		case <-c.joined:
		case <-c.ended:
		default:
			return true
		}
	}
	return expected
}

// endChildren ends all programs, with all that they started in their process
// groups: first they are asked to. The node is closed, so no new ones come.
func (n *Node) endChildren() {
	n.mu.Lock()
	var running []*child
	for _, c := range n.children.byPID {
		if c.proc != nil { // else it is killed as soon as it is there
			running = append(running, c)
			c.proc.Signal(syscall.SIGTERM)
		}
	}
	n.mu.Unlock()
	late := time.NewTimer(timeout.Terminate)
	defer late.Stop()
	for i, c := range running {
		select {
		case <-c.ended:
		case <-late.C:
			for _, c := range running[i:] {
				c.proc.Signal(syscall.SIGKILL)
			}
			return // Close waits for them as for all else, but not for ever
		}
	}
}

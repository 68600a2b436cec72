package vmmctest

import "time"

// SetSettle changes how long daemons have to see that processes have ended.
func SetSettle(d time.Duration) (back func()) {
	was := settle
	settle = d
	return func() { settle = was }
}

// Holds reports whether what the node sends to another one is delayed at the moment.
func (n *Node) Holds(other *Node) bool {
	w := n.out[other]
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		if len(c.late[0]) > 0 { // the first one of them is with the writer
			return true
		}
	}
	return false
}

// Ended is closed when the child has ended. The test does not count as having seen it.
func Ended(p *Proc) <-chan struct{} { return p.done }

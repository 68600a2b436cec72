package daemon

import (
	"cmp"
	"slices"
	"sync"
	"time"

	pages "github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// linkCounters are what a process counts of its links, in memory that this node reads.
type linkCounters struct {
	mu     sync.Mutex
	r      *pages.Reader // nil: the process has sent none, or has ended
	seen   map[int]sighting
	failed bool // and it was said
}

// sighting is a link as it was looked at last.
type sighting struct {
	serial  uint32
	counts  pages.Counts
	changed time.Time // when it was first seen so
}

// linkEnd is one end of a link, here.
type linkEnd struct {
	pages.Link
	p    *process
	idle time.Duration
	read time.Time
}

// count takes the descriptor that came with a registration. A process that has none,
// or another memory, is not watched, and has no other disadvantage of it.
func (p *process) count(fds []int) {
	if len(fds) != 1 {
		return
	}
	fd, err := unix.Dup(fds[0])
	if err != nil {
		return
	}
	r, err := pages.OpenCounters(fd)
	if err != nil {
		p.n.log.Warn("what a process counts cannot be read", "realpid", p.cred.PID, "err", err)
		return
	}
	p.counters.mu.Lock()
	p.counters.r = r
	p.counters.mu.Unlock()
}

// look reads the counters.
func (p *process) look(now time.Time) (ends []linkEnd) {
	c := &p.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.r == nil {
		return nil
	}
	links, _, err := c.r.Read()
	if err != nil {
		if !c.failed {
			p.n.log.Warn("what a process counts cannot be read", "realpid", p.cred.PID, "err", err)
		}
		c.failed = true
		return nil
	}
	seen := make(map[int]sighting, len(links))
	for _, l := range links {
		s := sighting{l.Serial, l.Counts, now}
		if was, ok := c.seen[l.Slot]; ok && was.serial == l.Serial && was.counts == l.Counts {
			s.changed = was.changed
		}
		seen[l.Slot] = s
		ends = append(ends, linkEnd{Link: l, p: p, idle: now.Sub(s.changed), read: now})
	}
	c.seen = seen
	return ends
}

// uncount gives the memory back.
func (p *process) uncount() {
	p.counters.mu.Lock()
	defer p.counters.mu.Unlock()
	if p.counters.r != nil {
		p.counters.r.Close()
		p.counters.r = nil
	}
}

// linkEnds looks at the links of all processes that may be shown, in the order of pids.
func (n *Node) linkEnds(may func(*process) bool) (ends []linkEnd) {
	n.mu.Lock()
	var all []*process
	for _, p := range n.processes {
		if may(p) {
			all = append(all, p)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(all, func(a, b *process) int { return cmp.Compare(a.id.Load().PID, b.id.Load().PID) })
	for _, p := range all {
		ends = append(ends, p.look(time.Now())...)
	}
	return ends
}

// lookAtLinks looks now and then, so that it is known since when a link is idle.
func (n *Node) lookAtLinks() {
	t := time.NewTicker(timeout.Links)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			n.linkEnds(func(*process) bool { return true })
		case <-n.ctx.Done():
			return
		}
	}
}

package daemon

import (
	"iter"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	pages "github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// linkCounters reads the counters that a process keeps of its links in shared memory.
type linkCounters struct {
	p *process

	mu     sync.Mutex
	reader *pages.Reader // nil: the process sent no memory, or has ended
	base   pages.Ended   // the totals at registration, counted under an earlier daemon
	seen   map[int]linkSample
	failed bool // and it was said
	closed bool // the process has ended
}

// linkSample is the last sample of a link.
type linkSample struct {
	serial  uint32
	counts  pages.Counts
	changed time.Time // when these counts were first seen
}

// linkEnd is one end of a link, here.
type linkEnd struct {
	pages.Link
	p    *process
	idle time.Duration
	read time.Time
}

// open maps the descriptor that came with a registration. A process that sent none, or
// other memory, is not counted; nothing else changes for it.
func (c *linkCounters) open(fds []int) {
	if len(fds) != 1 {
		return
	}
	fd, err := foreign.Dup(fds[0])
	if err != nil {
		return
	}
	r, err := pages.OpenCounters(fd)
	if err != nil {
		c.p.n.logs.Server.Warn("a process's counters cannot be read", "realpid", c.p.cred.PID, "err",
			err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.reader != nil {
		r.Close()
		return
	}
	c.reader = r
	c.base = c.totals()
}

// read reads the counters.
func (c *linkCounters) read(now time.Time) (ends []linkEnd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reader == nil {
		return nil
	}
	links, _, err := c.reader.Read()
	if err != nil {
		if !c.failed {
			c.p.n.logs.Server.Warn("a process's counters cannot be read", "realpid", c.p.cred.PID, "err",
				err)
		}
		c.failed = true
		return nil
	}
	seen := make(map[int]linkSample, len(links))
	for _, l := range links {
		s := linkSample{l.Serial, l.Counts, now}
		if was, ok := c.seen[l.Slot]; ok && was.serial == l.Serial && was.counts == l.Counts {
			s.changed = was.changed
		}
		seen[l.Slot] = s
		ends = append(ends, linkEnd{Link: l, p: c.p, idle: now.Sub(s.changed), read: now})
	}
	c.seen = seen
	return ends
}

// totals are all that the process has counted since it registered.
func (c *linkCounters) totals() (all pages.Ended) {
	if c.reader == nil {
		return all
	}
	links, all, err := c.reader.Read()
	if err != nil {
		return pages.Ended{}
	}
	for i := range links {
		if links[i].Importing {
			all.Imports.Add(&links[i].Counts)
		} else {
			all.Exports.Add(&links[i].Counts)
		}
	}
	all.Imports.Sub(&c.base.Imports)
	all.Exports.Sub(&c.base.Exports)
	return all
}

// close gives the memory back, of a process that has ended; the node keeps its sums.
func (c *linkCounters) close() {
	ended := &c.p.n.registry.endedTotals
	ended.mu.Lock()
	defer ended.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.reader != nil {
		all := c.totals()
		ended.sum.Imports.Add(&all.Imports)
		ended.sum.Exports.Add(&all.Exports)
		c.reader.Close()
		c.reader = nil
	}
}

// linkEnds looks at the links of all processes that may be shown, in the order of pids; at
// each process when its turn comes.
func (reg *registry) linkEnds(may func(*process) bool) iter.Seq[linkEnd] {
	return func(yield func(linkEnd) bool) {
		for _, p := range reg.byPID(may) {
			for _, l := range p.counters.read(time.Now()) {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// sampleLinks looks now and then, so that it is known since when a link is idle.
func (reg *registry) sampleLinks() {
	t := time.NewTicker(timeout.Links)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			for _, p := range reg.byPID(func(*process) bool { return true }) {
				p.counters.read(time.Now())
			}
		case <-reg.n.ctx.Done():
			return
		}
	}
}

// endedTotals sums the counters of processes that have ended.
type endedTotals struct {
	mu  sync.Mutex // before that of a process's counters
	sum pages.Ended
}

// Figures are what the node can say of itself in numbers.
type Figures struct {
	Processes int
	Links     map[Side]int
	// Ends of links by the state of their connection, and sessions by theirs; all states are there.
	LinkStates    map[LinkState]int
	SessionStates map[string]int
	Totals        pages.Ended       // of all processes since the node began
	Refused       map[string]uint64 // unauthenticated connections, by why
}

// Side tells kinds of links' ends apart.
type Side struct{ Imports, Mapped, Encrypted bool }

// LinkState tells links' ends apart by the name of their connection's state.
type LinkState struct {
	Imports bool
	State   string
}

// Figures looks.
func (n *Node) Figures() Figures {
	f := Figures{
		Links: map[Side]int{}, LinkStates: map[LinkState]int{}, SessionStates: n.sessions.countStates(),
		Refused: n.refusals.Sum(),
	}
	for s := pages.ConnUnknown; s <= pages.ConnReleased; s++ {
		f.LinkStates[LinkState{false, s.String()}], f.LinkStates[LinkState{true, s.String()}] = 0, 0
	}
	n.registry.endedTotals.mu.Lock() // no process ends meanwhile: each is in one of the two sums
	defer n.registry.endedTotals.mu.Unlock()
	f.Totals = n.registry.endedTotals.sum
	all := n.registry.all()
	f.Processes = len(all)
	for _, p := range all {
		for _, l := range p.counters.read(time.Now()) {
			f.Links[Side{l.Importing, l.Mapped, l.Secret && !l.Mapped}]++
			f.LinkStates[LinkState{l.Importing, l.State.String()}]++
		}
		p.counters.mu.Lock()
		sum := p.counters.totals()
		p.counters.mu.Unlock()
		f.Totals.Imports.Add(&sum.Imports)
		f.Totals.Exports.Add(&sum.Exports)
	}
	return f
}

package directory

import (
	"context"
	"slices"
	"sync"
)

// A name has two owners after a node has come back that others had taken out of their lists of
// nodes: its process kept the name, and another one has claimed it meanwhile. Each node then has
// the directory nodes told of the names of its processes ([Directory.introduce] and
// [Directory.reintroduce]). A directory node keeps the owner that it has, and answers that the name
// is taken. The node that is told so asks all directory nodes of the name. If most of them have the
// other owner, and its node says that the process has the name, then its own process loses it
// ([Directory.contest]). No two owners have a majority of the same nodes, so one owner stays. Only
// nodes with the same list answer: by two lists, each of two owners could have the majority of the
// nodes that the other one asks, and both would lose. Until the lists are the same both stay.

// introduce has nodes that are new in the list told of this node's names that they are directory
// nodes of. They need not ask: their own list may have been the same all the time.
func (d *Directory) introduce(view *View, added []string) {
	own, err := d.cfg.Names.Owned(d.cfg.Ctx, false)
	if err != nil { // processes are just leaving: they announce their names when they come back
		return
	}
	for _, r := range own.Registrations {
		for _, node := range view.Set(r.Key) {
			if slices.Contains(added, node) {
				d.reintroduce(node, r)
			}
		}
	}
}

// reintroduce has a directory node told of a name that a process has. The end of the name is told
// after it, because it has a later order.
func (d *Directory) reintroduce(node string, r Registration) {
	if d.cfg.Names.Holding(d.cfg.Ctx, r) == HoldsName {
		d.outbox.register([]string{node}, r)
	}
}

// maxContests is how many names of a node are contested at a time.
const maxContests = 32

// contests are the names of this node's processes that a directory node has called taken. Each is
// contested by a goroutine of a few, because the nodes that it asks may be silent: the goroutine
// that tells a node of names has others to tell it of.
type contests struct {
	d *Directory

	mu      sync.Mutex
	queue   []Registration      // Guarded by mu.
	known   map[update]struct{} // queued or under way. Guarded by mu.
	running int                 // goroutines. Guarded by mu.
}

// begin has a name contested, unless it is already.
func (c *contests) begin(r Registration) {
	u := update{r.Key, r.export()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.known[u]; known {
		return
	}
	if c.known == nil {
		c.known = map[update]struct{}{}
	}
	c.known[u] = struct{}{}
	c.queue = append(c.queue, r)
	if c.running < maxContests {
		c.running++
		c.d.cfg.Go(c.run)
	}
}

// run contests names until none is queued.
func (c *contests) run() {
	for r, more := c.next(nil); more; r, more = c.next(&r) {
		c.d.contest(c.d.cfg.Ctx, r)
	}
}

// next returns the next name after one that is over. Without one the goroutine ends.
func (c *contests) next(over *Registration) (r Registration, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over != nil {
		delete(c.known, update{over.Key, over.export()})
	}
	if len(c.queue) == 0 {
		c.running--
		return r, false
	}
	r, c.queue = c.queue[0], c.queue[1:]
	return r, true
}

// contest ends a name of a process of this node if another process has it, as a majority of the
// directory nodes and the node of that process say.
func (d *Directory) contest(ctx context.Context, r Registration) {
	view, _ := d.View()
	set := view.Set(r.Key)
	votes := map[export]int{}
	for _, node := range set {
		a, err := d.findAt(ctx, node, Query{Key: r.Key, Nodes: view.Digest})
		if err != nil || a.Outcome != Registered {
			continue
		}
		counted := map[export]bool{} // a node has one vote for an owner, however often it names it
		for _, o := range a.Owners {
			if o.same(r) || o.Set && r.Set || counted[o.export()] {
				continue
			}
			counted[o.export()] = true
			if votes[o.export()]++; votes[o.export()] < quorum(set) {
				continue
			}
			h, err := d.holds(ctx, view.Digest, o)
			if now, _ := d.View(); err == nil && h == HoldsName && now.Digest == view.Digest {
				d.cfg.Names.Lose(r, o.Owner)
			}
			return
		}
	}
}

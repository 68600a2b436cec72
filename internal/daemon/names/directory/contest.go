package directory

import (
	"context"
	"slices"
)

// A name has two owners after a node has come back that others had taken out of their lists of
// nodes: its process kept the name, and another one has claimed it meanwhile. Each node then has
// the directory nodes told of the names of its processes ([Directory.introduce] and
// [Directory.reintroduce]). A directory node keeps the owner that it has, and answers that the name
// is taken. The node that is told so asks all directory nodes of the name. If most of them have the
// other owner, and its node says that the process has the name, then its own process loses it
// ([Directory.contest]). No two owners have a majority of the same nodes, so one owner stays.

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

// contest ends a name of a process of this node if another process has it, as a majority of the
// directory nodes and the node of that process say.
func (d *Directory) contest(ctx context.Context, r Registration) {
	view, _ := d.View()
	set := view.Set(r.Key)
	votes := map[export]int{}
	for _, node := range set {
		a, err := d.findAt(ctx, node, Query{Key: r.Key})
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
			h, err := d.holds(ctx, o)
			if now, _ := d.View(); err == nil && h == HoldsName && now.Digest == view.Digest {
				d.cfg.Names.Lose(r, o.Owner)
			}
			return
		}
	}
}

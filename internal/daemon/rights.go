package daemon

import (
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
)

// Who may import. Processes of the exporter's own user and session may wait for
// buffers that are not exported yet. Others may do so only while one of its
// exports lets them in. Whoever none lets in is a stranger, and is refused at
// once with one text, whether the buffer is there or not: strangers find out
// nothing about exports and hold nothing here.

// maxGuests bounds the imports of one process that wait here for an exporter of
// another user or session. Its own node bounds what it has waiting in all.
const maxGuests = 64

// What the daemon keeps for one process.
const (
	maxExports = 1 << 16  // as many as a process has words of state for
	maxWeight  = 16 << 20 // bytes of permissions
)

// kin says whether im is of the exporter's own user and session.
func (p *process) kin(im local.Importer) bool { return local.Kin(im, p.user, p.session) }

// admit says whether buffer id is there for im, and if it is not, what tells of
// a change. The error is for whoever is not let in.
func (p *process) admit(im local.Importer, id uint32) (e local.ExportRequest, there bool, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, there = p.exports[id]
	switch {
	case there && p.lets(e, im):
	case !p.kin(im) && !p.knows(im):
		err = code.New(code.NoRights,
			"process %d on node %q (user %q, session %q) does not allow process %d on node %q (user %q, session %q) to import: it lets in its own user and session, and whom its exports permit",
			p.id.Load().PID, p.n.cfg.Name, p.user, p.session, im.Process.PID, im.Process.Node, im.User, im.Session)
	case there:
		err = code.New(code.NoRights,
			"buffer %d of process %d on node %q (user %q, session %q) is not for process %d on node %q (user %q, session %q): it is permitted to %s only",
			id, p.id.Load().PID, p.n.cfg.Name, p.user, p.session, im.Process.PID, im.Process.Node, im.User, im.Session, terms(e.Permit))
	}
	return e, there, p.changed, err
}

// enter counts an import of a guest, until leave is called.
func (p *process) enter(im local.Importer) (leave func(), err error) {
	if p.kin(im) {
		return func() {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guests[im.Process] >= maxGuests {
		return nil, code.New(code.NoMem, "%d imports of process %d on node %q wait for process %d on node %q already, which is of another user or session",
			maxGuests, im.Process.PID, im.Process.Node, p.id.Load().PID, p.n.cfg.Name)
	}
	p.guests[im.Process]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.guests[im.Process]--; p.guests[im.Process] == 0 {
			delete(p.guests, im.Process)
		}
	}, nil
}

// knows says whether any export lets im in by a permission of its own; p.mu is held.
func (p *process) knows(im local.Importer) bool {
	for _, e := range p.exports {
		if len(e.Permit) > 0 && p.lets(e, im) {
			return true
		}
	}
	return false
}

// lets says whether im may import e.
func (p *process) lets(e local.ExportRequest, im local.Importer) bool {
	return local.Lets(e.Permit, im, p.user, p.session)
}

// terms says whom permissions let in, without the names, which are not for
// everybody.
func terms(ps []local.Permission) string {
	var out []string
	say := func(what string, when bool) {
		if when && !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	say("its own user and session", len(ps) == 0)
	for _, m := range ps {
		say("its own user and session", len(m.Users) == 0 && len(m.Sessions) == 0 && len(m.Processes) == 0)
		say("certain users", len(m.Users) > 0)
		say("certain sessions", len(m.Sessions) > 0)
		say("certain nodes", len(m.Nodes) > 0)
		say("certain processes", len(m.Processes) > 0)
	}
	return strings.Join(out, ", ")
}

// keep notes an export, or forgets it, within what one process may have here;
// p.mu is held.
func (p *process) keep(r local.ExportRequest, begin bool) error {
	old, again := p.exports[r.ID]
	weight := p.weight - weigh(old)
	if !begin && r.Serial != 0 && r.Serial != old.Serial { // that one has ended already
		return nil
	}
	if !begin {
		delete(p.exports, r.ID)
		p.weight = weight
		return nil
	}
	weight += weigh(r)
	if !again && len(p.exports) >= maxExports {
		return code.New(code.NoMem, "the process exports %d buffers already: close some", maxExports)
	}
	if weight > maxWeight {
		return code.New(code.NoMem, "the permissions of the process's exports would take %d bytes in its daemon, at most %d: permit whole sessions, users or nodes", weight, maxWeight)
	}
	p.exports[r.ID], p.weight = r, weight
	return nil
}

// weigh is about what the permissions of an export take in memory, in bytes.
func weigh(r local.ExportRequest) int {
	entries, names := local.Weigh(r.Permit)
	return entries*64 + names
}

package daemon

import (
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
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
	maxExports         = 1 << 16  // as many as a process has words of state for
	maxPermissionBytes = 16 << 20 // bytes of permissions
)

// sameUserAndSession says whether im is of the exporter's own user and session.
func (p *process) sameUserAndSession(im nodeproto.Importer) bool {
	return nodeproto.SameUserAndSession(im, p.user, p.session)
}

// admit says whether buffer id is there for im, and if it is not, what tells of
// a change. The error is for whoever is not let in.
func (p *process) admit(im nodeproto.Importer, id uint32) (e nodeproto.ExportRequest, there bool, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, there = p.exports[id]
	switch {
	case there && p.permits(e, im):
	case !p.sameUserAndSession(im) && !p.permitsAny(im):
		err = code.New(code.NoRights,
			"process %d on node %q (user %q, session %q) does not allow process %d on node %q (user %q, session %q) to import: it lets in its own user and session, and whom its exports permit",
			p.id.Load().PID, p.n.cfg.Name, p.user, p.session, im.Process.PID, im.Process.Node, im.User, im.Session)
	case there:
		err = code.New(code.NoRights,
			"buffer %d of process %d on node %q (user %q, session %q) is not for process %d on node %q (user %q, session %q): it is permitted to %s only",
			id, p.id.Load().PID, p.n.cfg.Name, p.user, p.session, im.Process.PID, im.Process.Node, im.User, im.Session, describePermissions(e.Permit))
	}
	return e, there, p.changed, err
}

// enterGuest counts an import of a guest, until leave is called.
func (p *process) enterGuest(im nodeproto.Importer) (leave func(), err error) {
	if p.sameUserAndSession(im) {
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

// permitsAny says whether any export lets im in by a permission of its own; p.mu is held.
func (p *process) permitsAny(im nodeproto.Importer) bool {
	for _, e := range p.exports {
		if len(e.Permit) > 0 && p.permits(e, im) {
			return true
		}
	}
	return false
}

// permits says whether im may import e.
func (p *process) permits(e nodeproto.ExportRequest, im nodeproto.Importer) bool {
	return nodeproto.Permits(e.Permit, im, p.user, p.session)
}

// describePermissions says whom permissions let in, without the names, which are not for
// everybody.
func describePermissions(ps []nodeproto.Permission) string {
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

// updateExport notes an export, or forgets it, within what one process may have here;
// p.mu is held.
func (p *process) updateExport(r nodeproto.ExportRequest, begin bool) error {
	old, again := p.exports[r.ID]
	weight := p.permissionBytes - permissionSize(old)
	if !begin && r.Serial != 0 && r.Serial != old.Serial { // that one has ended already
		return nil
	}
	if !begin {
		delete(p.exports, r.ID)
		p.permissionBytes = weight
		return nil
	}
	weight += permissionSize(r)
	if !again && len(p.exports) >= maxExports {
		return code.New(code.NoMem, "the process exports %d buffers already: close some", maxExports)
	}
	if weight > maxPermissionBytes {
		return code.New(code.NoMem, "the permissions of the process's exports would take %d bytes in its daemon, at most %d: permit whole sessions, users or nodes", weight, maxPermissionBytes)
	}
	p.exports[r.ID], p.permissionBytes = r, weight
	return nil
}

// permissionSize is about what the permissions of an export take in memory, in bytes.
func permissionSize(r nodeproto.ExportRequest) int {
	entries, names := nodeproto.PermissionSize(r.Permit)
	return entries*64 + names
}

package daemon

import (
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Import rights. Processes of the exporter's own user and session may wait for buffers that are not
// exported yet. Other processes may do so only while one of its exports permits them. A process
// that no export permits is refused at once with the same text whether the buffer exists or not: it
// learns nothing about exports and holds nothing here.

// maxGuests bounds the imports of one process that wait here for an exporter of
// another user or session. Its own node bounds what it has waiting in all.
const maxGuests = 64

// Limits on what the daemon keeps for one process.
const (
	maxExports         = 1 << 16  // the number of state slots of a process
	maxPermissionBytes = 16 << 20 // bytes of permissions
)

// sameUserAndSession reports whether im has the exporter's user and session.
func (p *process) sameUserAndSession(im nodeproto.Importer) bool {
	return nodeproto.SameUserAndSession(im, p.user, p.session)
}

// admit reports whether buffer id is exported and permitted to im. changed is closed when the
// exports change. The error is set for an importer that is not permitted.
func (p *process) admit(
	im nodeproto.Importer, id uint32,
) (e nodeproto.ExportRequest, there bool, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, there = p.exports[id]
	switch {
	case there && p.permits(e, im):
	case !p.sameUserAndSession(im) && !p.permitsAny(im):
		err = code.New(code.NoRights,
			"process %d on node %q (user %q, session %q) does not allow process %d on node %q (user %q, "+
				"session %q) to import: it admits its own user and session, and what its exports permit",
			p.id.Load().PID, p.n.cfg.Name, p.user, p.session, im.Process.PID, im.Process.Node, im.User, im.Session)
	case there:
		err = code.New(code.NoRights,
			"buffer %d of process %d on node %q (user %q, session %q) is not for process %d on node %q "+
				"(user %q, session %q): it is permitted to %s only",
			id, p.id.Load().PID, p.n.cfg.Name, p.user, p.session, im.Process.PID, im.Process.Node, im.User, im.Session, describePermissions(e.Permit))
	}
	return e, there, p.changed, err
}

// enterGuest counts a waiting import of another user or session, until leave is called.
func (p *process) enterGuest(im nodeproto.Importer) (leave func(), err error) {
	if p.sameUserAndSession(im) {
		return func() {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.guests[im.Process] >= maxGuests {
		return nil, code.New(code.NoMem, "%d imports of process %d on node %q wait for process %d on "+
			"node %q already, which is of another user or session",
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

// permitsAny reports whether the permissions of any export match im. p.mu is held.
func (p *process) permitsAny(im nodeproto.Importer) bool {
	for _, e := range p.exports {
		if len(e.Permit) > 0 && p.permits(e, im) {
			return true
		}
	}
	return false
}

// permits reports whether im may import e.
func (p *process) permits(e nodeproto.ExportRequest, im nodeproto.Importer) bool {
	return nodeproto.Permits(e.Permit, im, p.user, p.session)
}

// describePermissions summarises permissions without the names, which are private.
func describePermissions(ps []nodeproto.Permission) string {
	var out []string
	say := func(what string, when bool) {
		if when && !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	say("its own user and session", len(ps) == 0)
	for _, m := range ps {
		say("its own user and session", len(m.Users) == 0 && len(m.Sessions) == 0 &&
			len(m.Processes) == 0)
		say("certain users", len(m.Users) > 0)
		say("certain sessions", len(m.Sessions) > 0)
		say("certain nodes", len(m.Nodes) > 0)
		say("certain processes", len(m.Processes) > 0)
	}
	return strings.Join(out, ", ")
}

// updateExport adds or removes an export within the limits of a process. p.mu is held.
func (p *process) updateExport(r nodeproto.ExportRequest, begin bool) error {
	old, again := p.exports[r.ID]
	weight := p.permissionBytes - permissionSize(old)
	if !begin && r.Serial != 0 && r.Serial != old.Serial { // that export has ended already
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
		return code.New(code.NoMem, "the permissions of the process's exports would take %d bytes in "+
			"its daemon, at most %d: permit whole sessions, users or nodes", weight, maxPermissionBytes)
	}
	p.exports[r.ID], p.permissionBytes = r, weight
	return nil
}

// permissionSize estimates the memory of an export's permissions, in bytes.
func permissionSize(r nodeproto.ExportRequest) int {
	entries, names := nodeproto.PermissionSize(r.Permit)
	return entries*64 + names
}

// exportedBytes is how many bytes the process says that it exports.
func (p *process) exportedBytes() (sum uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.exports {
		sum += uint64(e.Size)
	}
	return sum
}

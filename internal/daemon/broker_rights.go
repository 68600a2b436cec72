package daemon

import (
	"slices"
	"strings"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Import rights. Processes of the exporter's own user and session may wait for buffers that are not
// exported yet. Other processes may do so only while one of its exports permits them. A process
// that no export permits is refused at once with the same text whether the buffer exists or not: it
// learns nothing about exports and holds nothing here.

// maxForeignWaits bounds the imports of one process that wait here for an exporter of
// another user or session. Its own node bounds what it has waiting in all.
const maxForeignWaits = 64

// Limits on what the daemon keeps for one process.
const (
	maxExports         = 1 << 16  // the number of state slots of a process
	maxPermissionBytes = 16 << 20 // bytes of permissions
)

// exportTable is the exports of a process, and which imports may wait for them.
type exportTable struct {
	p *process

	mu      sync.Mutex
	byID    map[uint32]nodeproto.ExportRequest
	changed chan struct{} // closed and replaced when exports change
	// Pending imports by processes of other users or sessions.
	foreignWaits map[nodeproto.ProcessID]int
	// Memory that the permissions of exports take in this daemon.
	permissionBytes int
}

func newExportTable(p *process) exportTable {
	return exportTable{
		p: p, byID: map[uint32]nodeproto.ExportRequest{}, changed: make(chan struct{}),
		foreignWaits: map[nodeproto.ProcessID]int{},
	}
}

// sameUserAndSession reports whether im has the exporter's user and session.
func (t *exportTable) sameUserAndSession(im nodeproto.Importer) bool {
	return nodeproto.SameUserAndSession(im, t.p.user, t.p.session)
}

// admit reports whether buffer id is exported and permitted to im. changed is closed when the
// exports change. The error is set for an importer that is not permitted.
func (t *exportTable) admit(
	im nodeproto.Importer, id uint32,
) (e nodeproto.ExportRequest, there bool, changed <-chan struct{}, err error) {
	p := t.p
	t.mu.Lock()
	defer t.mu.Unlock()
	e, there = t.byID[id]
	switch {
	case there && t.permits(e, im):
	case !t.sameUserAndSession(im) && !t.permitsAny(im):
		err = code.New(code.NoRights,
			"process %d on node %q (user %q, session %q) does not allow process %d on node %q (user %q, "+
				"session %q) to import: it admits its own user and session, and what its exports permit",
			p.id.Load().PID, p.n.cfg.Name, p.user, p.session,
			im.Process.PID, im.Process.Node, im.User, im.Session)
	case there:
		err = code.New(code.NoRights,
			"buffer %d of process %d on node %q (user %q, session %q) is not for process %d on node %q "+
				"(user %q, session %q): it is permitted to %s only",
			id, p.id.Load().PID, p.n.cfg.Name, p.user, p.session,
			im.Process.PID, im.Process.Node, im.User, im.Session, describePermissions(e.Permit))
	}
	return e, there, t.changed, err
}

// countForeignWait counts a waiting import of another user or session, until leave is called.
func (t *exportTable) countForeignWait(im nodeproto.Importer) (leave func(), err error) {
	if t.sameUserAndSession(im) {
		return func() {}, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.foreignWaits[im.Process] >= maxForeignWaits {
		return nil, code.New(code.NoMem, "%d imports of process %d on node %q wait for process %d on "+
			"node %q already, which is of another user or session",
			maxForeignWaits, im.Process.PID, im.Process.Node, t.p.id.Load().PID, t.p.n.cfg.Name)
	}
	t.foreignWaits[im.Process]++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.foreignWaits[im.Process]--; t.foreignWaits[im.Process] == 0 {
			delete(t.foreignWaits, im.Process)
		}
	}, nil
}

// permitsAny reports whether the permissions of any export match im. mu is held.
func (t *exportTable) permitsAny(im nodeproto.Importer) bool {
	for _, e := range t.byID {
		if len(e.Permit) > 0 && t.permits(e, im) {
			return true
		}
	}
	return false
}

// permits reports whether im may import e.
func (t *exportTable) permits(e nodeproto.ExportRequest, im nodeproto.Importer) bool {
	return nodeproto.Permits(e.Permit, im, t.p.user, t.p.session)
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

// update adds or removes an export within the limits of a process. It returns the serial of the
// export that has ended by that, or 0. mu is held.
func (t *exportTable) update(r nodeproto.ExportRequest, begin bool) (ended uint64, err error) {
	old, again := t.byID[r.ID]
	weight := t.permissionBytes - permissionSize(old)
	if !begin && r.Serial != 0 && r.Serial != old.Serial { // that export has ended already
		return 0, nil
	}
	if !begin {
		delete(t.byID, r.ID)
		t.permissionBytes = weight
		return old.Serial, nil
	}
	weight += permissionSize(r)
	if !again && len(t.byID) >= maxExports {
		return 0, code.New(code.NoMem, "the process exports %d buffers already: close some", maxExports)
	}
	if weight > maxPermissionBytes {
		return 0, code.New(code.NoMem, "the permissions of the process's exports would take %d bytes in "+
			"its daemon, at most %d: permit whole sessions, users or nodes", weight, maxPermissionBytes)
	}
	t.byID[r.ID], t.permissionBytes = r, weight
	if old.Serial == r.Serial {
		return 0, nil
	}
	return old.Serial, nil
}

// permissionSize estimates the memory of an export's permissions, in bytes.
func permissionSize(r nodeproto.ExportRequest) int {
	entries, names := nodeproto.PermissionSize(r.Permit)
	return entries*64 + names
}

// bytes is how many bytes the process says that it exports.
func (t *exportTable) bytes() (sum uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.byID {
		sum += uint64(e.Size)
	}
	return sum
}

// announce records a buffer, or its end, and wakes waiting imports. It returns the serial of the
// export that has ended by that, or 0.
func (t *exportTable) announce(r nodeproto.ExportRequest, begin bool) (ended uint64, err error) {
	if begin && (r.Size <= 0 || r.Rights == 0 ||
		r.Rights&^(nodeproto.MayRead|nodeproto.MayWrite) != 0) {
		return 0, code.New(code.BadArg, "export of %d bytes with rights %#x", r.Size, r.Rights)
	}
	if err := nodeproto.CheckPermissions(r.Permit); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ended, err = t.update(r, begin); err != nil {
		return 0, err
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return ended, nil
}

// of returns the export of an id with a serial.
func (t *exportTable) of(id uint32, serial uint64) (e nodeproto.ExportRequest, there bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, there = t.byID[id]
	return e, there && e.Serial == serial
}

package model_test

import (
	"slices"

	"github.com/vmmc-go/vmmc"
)

var _ = declare(
	"states", "an export permitted to a process", "an export permitted to a node", "an export permitted to another session",
	"an export permitted to all sessions", "an export permitted to nobody", "an import that is not permitted",
	"an import from another session permitted", "an import from another session not permitted", "an import beyond the limit",
	"a part of an allocation mapped", "memory declared to be what it is not", "memory exported with rights that it cannot have any more",
)

// strangers is a session that no process of a sequence is of.
const strangers = "strangers"

// limits are those of the processes' imports, by slot; 0 is none.
var limits = []int64{0, 900 << 10, 0}

// permit draws the processes that may import an export.
func (s *sequence) permit(e *export) (opts []vmmc.ExportOption) {
	e.stranger = false
	p := vmmc.Permission{}
	switch s.below(24, "permit") {
	case 10, 11:
		who := pick(s, s.processes, "permitted")
		e.lets = func(p *process) bool { return p == who }
		p.Processes = []vmmc.ProcessID{who.id}
		reach("states", "an export permitted to a process")
	case 12, 13:
		node := pick(s, []string{"a", "b"}, "node")
		e.lets = func(p *process) bool { return p.node == node }
		id, err := e.owner.p.NameToNode(node)
		s.expect("NameToNode", err, ok)
		p.Nodes = []vmmc.NodeID{id}
		reach("states", "an export permitted to a node")
	case 14, 15:
		e.lets = func(*process) bool { return false }
		e.stranger = true
		p.Sessions = []string{strangers}
		reach("states", "an export permitted to another session")
	case 16, 17:
		e.stranger = true
		p.Sessions = []string{"*"}
		reach("states", "an export permitted to all sessions")
	case 18:
		e.lets = func(*process) bool { return false }
		p.Users = []string{"nobody-at-all"}
		reach("states", "an export permitted to nobody")
	case 19:
		e.bad = results(vmmc.ErrBadArg)
		return []vmmc.ExportOption{vmmc.Permit()}
	default:
		return nil
	}
	return []vmmc.ExportOption{vmmc.Permit(p)}
}

// shelter draws what an export says of its memory's kind.
func (s *sequence) shelter(e *export) (opts []vmmc.ExportOption) {
	if s.rarely(8, "global") {
		opts = append(opts, vmmc.GlobalSpace())
		if e.mem.alloc == nil {
			e.bad = results(vmmc.ErrBadArg)
		}
	}
	return opts
}

// admission is how an import by a process may end.
func (s *sequence) admission(p *process, e *export) (out []result) {
	if e.lets != nil && !e.lets(p) {
		out = append(out, results(vmmc.ErrNoRights)...)
		reach("states", "an import that is not permitted")
	}
	if out = append(out, s.beyond(p, e)...); len(out) == 0 {
		return []result{ok}
	}
	return out
}

// beyond is how an import ends that exceeds its process's limit.
func (s *sequence) beyond(p *process, e *export) []result {
	if p.limit == 0 || p.used+int64(e.n) <= p.limit {
		return nil
	}
	reach("states", "an import beyond the limit")
	return results(vmmc.ErrNoPhysDestSpace)
}

// strangeImport has a process of another session import.
func (s *sequence) strangeImport() {
	list := slices.DeleteFunc(slices.Clone(s.exports), (*export).alone)
	if len(list) == 0 {
		return
	}
	e := pick(s, list, "export")
	if likely := slices.IndexFunc(list, func(e *export) bool { return e.stranger }); likely >= 0 && s.below(2, "permitted") == 0 {
		e = list[likely]
	}
	ctx, stop := s.within()
	defer stop()
	s.say("a stranger: import %d of %s", e.id, e.owner.name)
	im, err := s.w.stranger.Import(ctx, e.owner.id.Node, e.owner.id.PID, e.id)
	if !e.stranger {
		s.expect("Import from another session", err, result{code: vmmc.ErrNoRights})
		reach("states", "an import from another session not permitted")
		return
	}
	s.expect("Import from another session", err, ok)
	reach("states", "an import from another session permitted")
	s.expect("Import.Close", im.Close(), ok)
}

// unsealed says whether an export's memory can have its rights: pages that
// were given to importers keep theirs until all of the memory is exported, and
// not any more.
func (s *sequence) sealFaults(e *export) (must, may []result) {
	if !e.mappable {
		return nil, nil
	}
	bad := results(vmmc.ErrBadArg)
	for _, o := range s.exports {
		if o.mem == e.mem && o.mappable && (o.rights&mayWrite == 0) != (e.rights&mayWrite == 0) {
			reach("states", "memory exported with rights that it cannot have any more")
			return bad, nil
		}
	}
	if e.mem.shared {
		return nil, bad
	}
	return nil, nil
}

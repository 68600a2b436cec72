package model_test

import (
	"context"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// imported is an import of an export.
type imported struct {
	p      *process
	exp    *export
	im     *vmmc.Import
	link   *link
	addr   manual.ProxyAddr
	mapped bool
	closed bool
	known  bool // a call has said that the export has ended, or the process
	lost   bool // something was sent after the export's end: a fence must say so
	uses   int  // after its end
	told   bool // by an event that the export has ended
}

var _ = declare(
	"calls", "Import mapped", "Import stream", "Import.Close",
)

var _ = declare(
	"states", "an own export imported, mapped", "an own export imported, stream", "a buffer imported twice",
	"one id exported and imported", "an import between nodes", "an import from another session refused",
	"an import of what nobody exports", "a second process kept from a redirectable export", "an import that is closed before its export",
)

// live reports whether calls on the import are to succeed.
func (im *imported) live() bool { return !im.closed && !im.p.closed && !im.exp.closed }

func (im *imported) way() string {
	if im.mapped {
		return "mapped"
	}
	return "stream"
}

func (s *sequence) importBuffer() {
	if len(s.exports) == 0 {
		return
	}
	p, e := pick(s, s.open(), "process"), pick(s, s.exports, "export")
	s.say("%s: import %d of %s", p.name, e.id, e.owner.name)
	ctx, stop := s.within()
	defer stop()
	if e.alone() && e.pinned != nil && e.pinned != p {
		if !slices.ContainsFunc(s.imports, func(im *imported) bool { return im.exp == e && im.live() }) {
			return // it may have heard that the other has closed its import, or not
		}
		_, err := p.p.Import(ctx, e.owner.id.Node, e.owner.id.PID, e.id)
		s.expect("Import by a second process", err, append(s.beyond(p, e), results(vmmc.ErrNoRights)...)...)
		reach("states", "a second process kept from a redirectable export")
		return
	}
	s.take(p, e, func() (*vmmc.Import, error) { return p.p.Import(ctx, e.owner.id.Node, e.owner.id.PID, e.id) })
}

// take makes an import, which is to succeed if the process may have it.
func (s *sequence) take(p *process, e *export, how func() (*vmmc.Import, error)) result {
	real, err := how()
	e.pinned = p
	if r := s.expect("Import", err, s.admission(p, e)...); r != ok {
		return r
	}
	p.used += int64(e.n)
	im := &imported{p: p, exp: e, im: real, link: s.link(p, e.owner), mapped: e.mappable && p.node == e.owner.node}
	if e.mem.shared && im.mapped { // pages that have moved since are not
		im.mapped = real.Path() == vmmc.PathMapped
		if im.mapped && e.n < len(e.mem.real) {
			reach("states", "a part of an allocation mapped")
		}
	}
	if real.Size() != e.n || real.ID() != e.id || real.Exporter() != e.owner.id || real.Path().String() != im.way() {
		s.say("  size %d, id %d, exporter %v, path %s", real.Size(), real.ID(), real.Exporter(), real.Path())
		s.fail("Import: another size, id, exporter or path than the export's")
	}
	s.checkAddress(im)
	reach("calls", "Import "+im.way())
	switch {
	case p == e.owner:
		reach("states", "an own export imported, "+im.way())
	case p.node != e.owner.node:
		reach("states", "an import between nodes")
	}
	for _, o := range s.imports {
		if o.p == p && o.exp == e && o.live() {
			reach("states", "a buffer imported twice")
			break
		}
	}
	for _, o := range s.exports {
		if o.owner == p && o.id == e.id && o != e {
			reach("states", "one id exported and imported")
		}
	}
	s.imports, s.taken = append(s.imports, im), append(s.taken, im)
	if len(s.imports) > 12 {
		s.unimport(s.imports[0])
		s.imports = s.imports[1:]
	}
	return ok
}

func (s *sequence) importBadly() {
	p, q := pick(s, s.open(), "process"), pick(s, s.processes, "exporter")
	node, pid, id := q.id.Node, q.id.PID, uint32(99)
	ctx, stop := s.within()
	defer func() { stop() }()
	var allowed []result
	switch s.below(7, "kind") {
	case 0, 1: // it is not exported, or its process has ended
		allowed = results(vmmc.ErrTimeout)
		if q.closed {
			allowed = results(vmmc.ErrNoSuchProcess)
		} else {
			stop()
			ctx, stop = s.soon()
			reach("states", "an import of what nobody exports")
		}
		s.say("%s: import 99 of %s", p.name, q.name)
	case 2:
		_ = node.UnmarshalText([]byte("nowhere"))
		allowed = results(vmmc.ErrNoSuchNode)
		s.say("%s: import from a node that is not", p.name)
	case 3:
		pid = 1<<31 - 1
		allowed = results(vmmc.ErrNoSuchProcess)
		s.say("%s: import from a process that is not", p.name)
	case 4:
		_ = node.UnmarshalText([]byte(silent))
		allowed = results(vmmc.ErrUnreachable)
		s.say("%s: import from a node that does not run", p.name)
	case 5:
		node, pid = s.w.stranger.Node(), s.w.stranger.PID()
		allowed = results(vmmc.ErrNoRights)
		s.say("%s: import from another session", p.name)
		reach("states", "an import from another session refused")
	case 6:
		id = uint32(1 + s.below(ids, "id"))
		for _, e := range s.exports {
			if e.owner == q && e.id == id && e.alone() {
				return // it would be this process's for some time after
			}
		}
		s.say("%s: import %d of %s, given up before", p.name, id, q.name)
		s.gaveUp(q, id)
		allowed = append(results(vmmc.ErrCanceled, vmmc.ErrNoSuchProcess, vmmc.ErrNoRights, vmmc.ErrNoPhysDestSpace), ok)
		if laxDial && p.node != q.node {
			allowed = append(allowed, results(vmmc.ErrUnreachable)...)
		}
		ctx = cancelled()
	}
	im, err := p.p.Import(ctx, node, pid, id)
	if s.expect("bad Import", err, allowed...) == ok {
		s.expect("Import.Close", im.Close(), ok)
	}
}

func (s *sequence) closeImport() {
	if len(s.imports) == 0 {
		return
	}
	im := pick(s, s.imports, "import")
	s.unimport(im)
	if s.below(2, "forget") == 1 {
		s.imports = slices.DeleteFunc(s.imports, func(o *imported) bool { return o == im })
	}
}

func (s *sequence) unimport(im *imported) {
	s.say("%s: close import of %d of %s", im.p.name, im.exp.id, im.exp.owner.name)
	if im.live() {
		reach("states", "an import that is closed before its export")
		if im.link.under(im.exp) {
			reach("states", "a message under way when its import is closed")
		}
	}
	s.expect("Import.Close", im.im.Close(), ok)
	s.expect("Import.Close again", im.im.Close(), ok)
	reach("calls", "Import.Close")
	if !im.closed {
		im.p.used -= int64(im.exp.n)
	}
	im.closed = true
	im.p.dest.Remove(im.im)
	s.drop(im)
}

// anImport picks one; nil if there is none. What has ended is forgotten after a
// few calls.
func (s *sequence) anImport() *imported {
	if len(s.imports) == 0 {
		return nil
	}
	im := pick(s, s.imports, "import")
	if !im.live() {
		if im.uses++; im.uses == 3 {
			s.unimport(im)
			s.imports = slices.DeleteFunc(s.imports, func(o *imported) bool { return o == im })
		}
	}
	return im
}

// ends are the errors that an import's end causes.
func (im *imported) ends() (out []result) {
	if im.closed || im.p.closed {
		out = append(out, results(vmmc.ErrClosed)...)
	}
	if im.exp.closed {
		out = append(out, results(vmmc.ErrRevoked)...)
		if im.exp.owner.closed {
			out = append(out, results(vmmc.ErrPeerGone)...)
		}
	}
	return out
}

// noted remembers that a call has said that the import has ended.
func (im *imported) noted(r result) {
	switch r.code {
	case vmmc.ErrRevoked, vmmc.ErrPeerGone, vmmc.ErrClosed:
		im.known = true
	}
}

// aContext draws the context of a call for n bytes; one in some has ended before.
func (s *sequence) aContext(n int) (ctx context.Context, stop context.CancelFunc, ended bool) {
	odds := 12
	if n > 256<<10 {
		odds = 4 // it is looked at between the pieces
	}
	if s.rarely(odds, "ended context") {
		return cancelled(), func() {}, true
	}
	ctx, stop = s.within()
	return ctx, stop, false
}

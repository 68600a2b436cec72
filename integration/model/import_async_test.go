package model_test

import (
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// awaited is an asynchronous import of what is not exported yet.
type awaited struct {
	p, owner *process
	id       uint32
	r        *manual.ImportRequest
	stop     func() // its context's end
}

var _ = declare("calls", "ImportAsync", "ImportRequest.Status", "ImportRequest.Wait", "ImportRequest.Cancel")

var _ = declare(
	"states", "an import in progress", "an import that its export ended", "an asynchronous import taken at once", "an import request without a request",
	"an import request given out before", "an import request of a process that ended", "an import request cancelled", "an import request cancelled when it was made",
)

// importAsync begins an import of what may not be there yet, or asks after one.
func (s *sequence) importAsync() {
	if len(s.awaited) > 0 && s.below(2, "ask") == 1 {
		a := pick(s, s.awaited, "import request")
		if over := slices.IndexFunc(s.awaited, func(a *awaited) bool { return a.owner.closed && !a.p.closed }); over >= 0 {
			a = s.awaited[over]
		}
		s.askImport(a)
		return
	}
	if len(s.awaited) > 3 {
		s.cancelImport(s.awaited[0])
	}
	var none *manual.ImportRequest
	_, err := none.Status()
	s.expect("Status of no import", err, result{code: vmmc.ErrBadAsyncHandle})
	reach("states", "an import request without a request")
	p, owner := pick(s, s.open(), "process"), pick(s, s.open(), "exporter")
	a := &awaited{p: p, owner: owner, id: uint32(1 + s.below(ids, "id"))}
	for _, e := range s.exports {
		if e.owner == owner && e.id == a.id && e.alone() && e.pinned != p {
			return // another may have it, or have had it until just now
		}
	}
	if p.limit != 0 && slices.ContainsFunc(s.awaited, func(o *awaited) bool { return o.p == p && o.owner == owner && o.id == a.id }) {
		return // which of the two has room?
	}
	s.say("%s: begin to import %d of %s", p.name, a.id, owner.name)
	reach("calls", "ImportAsync")
	ctx, stop := s.within()
	a.stop = stop
	a.r = manual.ImportAsync(ctx, p.p, owner.id.Node, owner.id.PID, a.id)
	for _, e := range s.exports {
		if e.owner != owner || e.id != a.id {
			continue
		}
		if !e.alone() && s.rarely(4, "cancel") {
			s.gaveUp(a.owner, a.id)
			a.r.Cancel()
			_, err := a.r.Status()
			allowed := results(vmmc.ErrCanceled, vmmc.ErrStaleHandle, vmmc.ErrNoRights, vmmc.ErrNoPhysDestSpace)
			if laxDial && p.node != owner.node {
				allowed = append(allowed, results(vmmc.ErrUnreachable)...)
			}
			s.expect("Status of a cancelled import", err, allowed...)
			reach("states", "an import request cancelled when it was made")
			stop()
			return
		}
		reach("states", "an asynchronous import taken at once")
		s.answered(a, e)
		return
	}
	s.awaited = append(s.awaited, a)
}

// arrivals takes the imports that an export ends.
func (s *sequence) arrivals(e *export) {
	for _, a := range slices.Clone(s.awaited) {
		if a.owner == e.owner && a.id == e.id && !a.p.closed {
			reach("states", "an import that its export ended")
			s.answered(a, e)
		}
	}
}

// answered waits for an import that is to succeed.
func (s *sequence) answered(a *awaited, e *export) {
	defer a.stop()
	s.awaited = slices.DeleteFunc(s.awaited, func(o *awaited) bool { return o == a })
	ctx, stop := s.within()
	defer stop()
	reach("calls", "ImportRequest.Wait")
	s.say("%s: wait for the import of %d of %s", a.p.name, a.id, a.owner.name)
	if r := s.take(a.p, e, func() (*vmmc.Import, error) { return a.r.Wait(ctx) }); r != ok {
		_, err := a.r.Status()
		s.expect("ImportRequest.Status again", err, r)
		return
	}
	_, err := a.r.Status()
	s.expect("ImportRequest.Status again", err, result{code: vmmc.ErrStaleHandle})
	_, err = a.r.Wait(ctx)
	s.expect("ImportRequest.Wait again", err, result{code: vmmc.ErrStaleHandle})
	a.r.Cancel() // what was given out stays
	reach("states", "an import request given out before")
}

// askImport asks after an import of what is not exported.
func (s *sequence) askImport(a *awaited) {
	s.say("%s: ask for the import of %d of %s", a.p.name, a.id, a.owner.name)
	switch {
	case a.p.closed:
		s.cancelImport(a)
	case a.owner.closed:
		defer a.stop()
		s.awaited = slices.DeleteFunc(s.awaited, func(o *awaited) bool { return o == a })
		ctx, stop := s.within()
		defer stop()
		_, err := a.r.Wait(ctx)
		s.expect("ImportRequest.Wait for a process that ended", err, result{code: vmmc.ErrNoSuchProcess})
		reach("states", "an import request of a process that ended")
	default:
		reach("calls", "ImportRequest.Status")
		_, err := a.r.Status()
		s.expect("ImportRequest.Status", err, result{code: vmmc.ErrInProgress})
		reach("states", "an import in progress")
		_, err = a.r.Wait(cancelled())
		s.expect("ImportRequest.Wait given up", err, result{code: vmmc.ErrCanceled})
		if s.rarely(4, "cancel") {
			s.cancelImport(a)
		}
	}
}

// stale is a buffer whose import was given up.
type stale struct {
	owner *process
	id    uint32
}

// gaveUp takes note that a node may still let an importer in for a moment. The
// next sequence has another process in the exporter's place.
func (s *sequence) gaveUp(owner *process, id uint32) {
	s.stale = append(s.stale, stale{owner, id})
	if !slices.Contains(s.leaving, owner) {
		s.leaving = append(s.leaving, owner)
	}
}

func (s *sequence) cancelImport(a *awaited) {
	s.gaveUp(a.owner, a.id)
	defer a.stop()
	s.awaited = slices.DeleteFunc(s.awaited, func(o *awaited) bool { return o == a })
	s.say("%s: cancel the import of %d of %s", a.p.name, a.id, a.owner.name)
	reach("calls", "ImportRequest.Cancel")
	a.r.Cancel()
	_, err := a.r.Status()
	allowed := results(vmmc.ErrCanceled)
	if a.p.closed {
		allowed = append(allowed, results(vmmc.ErrNoDaemon, vmmc.ErrClosed)...)
	}
	if a.owner.closed {
		allowed = append(allowed, results(vmmc.ErrNoSuchProcess)...)
	}
	s.expect("ImportRequest.Status of a cancelled import", err, allowed...)
	reach("states", "an import request cancelled")
}

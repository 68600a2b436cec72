package link

import (
	"context"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// An import from a process on the same node to which there is a link is requested on the link: one
// frame in each direction. The way through the node takes two packets in each direction and wakes
// the node twice. The exporter knows the importer from its node, and answers only what it can
// answer at once.

// maxImports bounds the unanswered import requests on one link. The exporter ends a link that has
// more.
const maxImports = 32

// importRequests are the unanswered import requests.
type importRequests struct {
	rq   *Requester
	mu   sync.Mutex // Taken after rmu.
	last uint32     // The last number given.
	list []*importRequest
	// Requests in the list whose callers have given up.
	abandoned int
}

// importRequest is an unanswered import.
type importRequest struct {
	number  uint32
	awaited bool // Its caller waits.
	grant   wire.Granted
	fd      int // Descriptor received with the grant, or -1.
	done    wait.EventCount
}

// ask is [Requester.Import].
func (r *importRequests) ask(ctx context.Context, id uint32) (g wire.Granted, fd int, ok bool) {
	rq, s := r.rq, &importRequest{awaited: true, fd: -1}
	if !r.add(s) {
		return g, -1, false
	}
	tick := s.done.Load()
	rq.sendControl(wire.Header{Type: wire.Import, Handle: id, Serial: s.number})
	rq.e.markHot(&rq.stream)
	ctx, stop := context.WithTimeout(ctx, timeout.Answer)
	defer stop()
	_ = rq.e.wait(ctx, &wait.Cond{Word: s.done.Word(), Old: tick, Failed: &rq.failed, LocalOnly: true}, &rq.stream)
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.done.Load() == tick {
		if slices.Contains(r.list, s) {
			s.awaited = false
			r.abandoned++
		}
		return g, -1, false
	}
	return s.grant, s.fd, s.grant.Rights != 0
}

// add adds s to the requests. While an exporter owes an answer whose caller has given up, it
// is not asked again.
func (r *importRequests) add(s *importRequest) bool {
	rq := r.rq
	rq.rmu.Lock()
	defer rq.rmu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if rq.fd < 0 || len(r.list) >= maxImports || r.abandoned > 0 {
		return false
	}
	r.last++
	s.number = r.last
	r.list = append(r.list, s)
	rq.rx.expectFDs(rq.fd)
	return true
}

// handleGrant handles the answer to an import. The caller holds rmu.
func (r *importRequests) handleGrant(h *wire.Header) error {
	rq := r.rq
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.list, func(s *importRequest) bool { return s.number == h.Serial })
	if i < 0 {
		return protocol("an answer to import %d, which was not asked for", h.Serial)
	}
	s := r.list[i]
	r.list = slices.Delete(r.list, i, i+1)
	s.grant = h.Granted()
	if s.grant.Rights != 0 && s.grant.Mapped {
		s.fd = rq.rx.passedFDs.Take()
	}
	if len(r.list) == 0 {
		r.list = nil
		rq.rx.refuseFDs(rq.fd)
	}
	if !s.awaited {
		r.abandoned--
	}
	if !s.awaited || s.grant.Rights == 0 || s.grant.Mapped && s.fd < 0 {
		r.decline(s)
	}
	s.done.Advance()
	return nil
}

// decline returns a grant that cannot be used.
func (r *importRequests) decline(s *importRequest) {
	foreign.Close(s.fd)
	if s.grant.Handle != 0 {
		r.rq.sendControl(wire.Header{Type: wire.Detach, Handle: s.grant.Handle})
	}
	s.grant, s.fd = wire.Granted{}, -1
}

// importAnswer is an answer to an import that is to be written.
type importAnswer struct {
	h  wire.Header
	fd int // -1: no descriptor is sent.
}

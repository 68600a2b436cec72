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

// An import from a process that there is a link to, on one node, is asked for on
// the link: one frame there and one back, where the way through the node takes two
// packets each way and wakes it twice. The exporter knows from its node who the
// importer is, and answers only what it can answer at once.

// maxSeeks is how many imports can be asked for and not answered on one link; the
// exporter ends a link that has more.
const maxSeeks = 32

// seeks are the imports that were asked for.
type seeks struct {
	mu   sync.Mutex // after rmu
	last uint32     // the last number given
	list []*seek
	late int // of them, those that nobody waits for any more
}

// seek is an import that is not answered yet.
type seek struct {
	number uint32
	wanted bool // somebody waits
	grant  wire.Granted
	fd     int // that came with it, or -1
	done   wait.Tick
}

// Import asks the exporter to let this process import buffer id. ok says whether it
// does; else the nodes are to be asked, who may know why, or wait. The descriptor
// is the caller's; it is -1 unless the grant is mapped.
func (o *Out) Import(ctx context.Context, id uint32) (g wire.Granted, fd int, ok bool) {
	s := &seek{wanted: true, fd: -1}
	if !o.seek(s) {
		return g, -1, false
	}
	tick := s.done.Now()
	o.control(wire.Header{Type: wire.Import, Handle: id, Serial: s.number})
	o.e.warm(&o.stream)
	ctx, stop := context.WithTimeout(ctx, timeout.Answer)
	defer stop()
	_ = o.e.wait(ctx, &wait.Look{Word: s.done.Word(), Old: tick, Broken: &o.broken, Own: true}, &o.stream)
	o.seeks.mu.Lock()
	defer o.seeks.mu.Unlock()
	if s.done.Now() == tick {
		if slices.Contains(o.seeks.list, s) {
			s.wanted = false
			o.seeks.late++
		}
		return g, -1, false
	}
	return s.grant, s.fd, s.grant.Rights != 0
}

// seek enters s among what is asked for. An exporter that owes an answer for so
// long that nobody waits for it is not asked again before that has come.
func (o *Out) seek(s *seek) bool {
	o.rmu.Lock()
	defer o.rmu.Unlock()
	o.seeks.mu.Lock()
	defer o.seeks.mu.Unlock()
	if o.fd < 0 || len(o.seeks.list) >= maxSeeks || o.seeks.late > 0 {
		return false
	}
	o.seeks.last++
	s.number = o.seeks.last
	o.seeks.list = append(o.seeks.list, s)
	o.rx.await(o.fd)
	return true
}

// granted takes the answer to an import; rmu is held.
func (o *Out) granted(h *wire.Header) error {
	o.seeks.mu.Lock()
	defer o.seeks.mu.Unlock()
	i := slices.IndexFunc(o.seeks.list, func(s *seek) bool { return s.number == h.Serial })
	if i < 0 {
		return protocol("an answer to import %d, which was not asked for", h.Serial)
	}
	s := o.seeks.list[i]
	o.seeks.list = slices.Delete(o.seeks.list, i, i+1)
	s.grant = h.Granted()
	if s.grant.Rights != 0 && s.grant.Mapped {
		s.fd = o.rx.passed.Take()
	}
	if len(o.seeks.list) == 0 {
		o.seeks.list = nil
		o.rx.refuse(o.fd)
	}
	if !s.wanted {
		o.seeks.late--
	}
	if !s.wanted || s.grant.Rights == 0 || s.grant.Mapped && s.fd < 0 {
		o.decline(s)
	}
	s.done.Move()
	return nil
}

// decline gives a grant back that cannot be used.
func (o *Out) decline(s *seek) {
	foreign.Close(s.fd)
	if s.grant.Handle != 0 {
		o.control(wire.Header{Type: wire.Detach, Handle: s.grant.Handle})
	}
	s.grant, s.fd = wire.Granted{}, -1
}

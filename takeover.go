package vmmc

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// takeOver answers a dialled connection whose proof the daemon has checked, on
// the connection that was checked, and only as the incarnation that was meant.
func (p *Process) takeOver(r local.HandoverRequest, fd int) error {
	h, err := wire.ParseHello(r.Hello)
	p.joins.Lock() // of two attempts, the first has its link, or none, before the other is looked at
	defer p.joins.Unlock()
	p.mu.Lock()
	peer := p.waiting[r.Link]
	var status wire.Status
	var old *link.In
	switch {
	case err != nil || len(r.Challenge) != wire.ChallengeSize || r.Incarnation != p.id.Incarnation || peer == nil:
		status = wire.RefusedLink
	case h.Attempt <= peer.attempt:
		status = wire.RefusedAttempt
	case peer.attempt > 0 && peer.in != nil && peer.in.Terms().Limit == 0:
		status = wire.RefusedAttempt // one connection a link
	case peer.attempt > 0 && peer.in == nil && h.Capabilities&wire.Resumes != 0:
		status = wire.RefusedGone // what it would resume has ended here
	default:
		old = peer.in
		if peer.attempt == 0 {
			old = nil // another link of that process, which this one takes the place of
		}
		peer.attempt, peer.epoch = h.Attempt, r.Epoch
		peer.joining++
		defer p.joined(peer)
	}
	var key []byte
	var order uint64
	if peer != nil {
		key, order = peer.key, peer.order
	}
	p.mu.Unlock()
	// Either side may want payloads checked, and both must want to resume.
	a := wire.Answer{Status: status, Capabilities: (h.Capabilities|p.capabilities)&wire.Checked | h.Capabilities&p.capabilities&wire.Resumes}
	if status == wire.OK {
		a.Proof = wire.Prove(key, wire.Exporter, r.Hello, r.Challenge)
	}
	if old != nil {
		if err := old.Resume(fd, h.Applied, h.Notices, func(applied, partial uint64, credits uint32) error {
			a.Applied, a.Partial, a.Credits = applied, partial, uint64(credits)
			return answer(fd, &a)
		}); err != nil {
			p.log.Info("a link from an importer could not be resumed", "importer", peer.id, "err", err)
		}
		return nil
	}
	if err := answer(fd, &a); err != nil || status != wire.OK {
		_ = unix.Close(fd)
		return nil // the importer has its answer, or is gone
	}
	terms := p.terms(a.Capabilities)
	if terms.Limit > 0 {
		terms.Limit += timeout.Hello // an importer that dials within the limit is heard
	}
	id := peer.id
	terms.Departed = func(ctx context.Context) bool { return p.departed(ctx, id) }
	if err := p.joinAlone(id, order, r.Link, fd, nil, terms); err != nil {
		p.log.Info("a link from an importer could not be begun", "importer", peer.id, "err", err)
	}
	return nil // the importer has its answer; nobody else may answer it now
}

func answer(fd int, a *wire.Answer) error {
	var io unix.IO
	n, err := io.Send(fd, a.Encode(), nil)
	if err == nil && n != wire.AnswerSize {
		err = link.ErrGone // a fresh socket has room for it
	}
	return err
}

// departed asks the node whether another process is known to have ended.
func (p *Process) departed(ctx context.Context, id local.ProcessID) bool {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	d, fds, err := ask[local.Departure](ctx, p, local.Departed, id, nil)
	closeAll(fds)
	return err == nil && d.Departed
}

// forgetLink tells the node that nobody is to dial a link any more that has ended.
func (p *Process) forgetLink(l uint64) {
	p.mu.Lock() // Close waits for all that have begun before it
	defer p.mu.Unlock()
	if l == 0 || p.closed {
		return
	}
	p.begun.Go(func() {
		ctx, stop := context.WithTimeout(p.life, timeout.Control)
		defer stop()
		_, fds, err := ask[local.Empty](ctx, p, local.Forget, local.ForgetRequest{Link: l}, nil)
		closeAll(fds)
		if err != nil {
			p.log.Debug("the node was not told of a link's end", "link", l, "err", err)
		}
	})
}

package vmmc

import (
	"context"
	"io"
	"time"

	"github.com/vmmc-go/vmmc/internal/encrypt"
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
	if err != nil || h.Capabilities&wire.Encrypted == 0 || !p.shake(r, &h, fd) {
		p.takeOverBy(r, &h, err, fd, nil)
	}
	return nil // the importer has its answer; nobody else may answer it now
}

// shake begins TLS on a connection of an encrypted link, if it is of one. What comes of
// it comes later: nobody else waits for an importer that does not go on.
func (p *Process) shake(r local.HandoverRequest, h *wire.Hello, fd int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.waiting[r.Link]
	if peer == nil || peer.secret == nil || p.closed {
		return false
	}
	id, err := p.identity()
	if err != nil {
		return false // not so: there is one, of which the importer was told
	}
	nc, err := unix.Adopt(fd)
	if err != nil {
		p.log.Info("a connection could not be taken", "importer", peer.id, "err", err)
		return true
	}
	if peer.shaking != nil { // an importer that has dialled again has given the one before up
		_ = peer.shaking.Close()
	}
	peer.shaking = nc
	secret := peer.secret
	p.begun.Go(func() {
		_ = nc.SetDeadline(time.Now().Add(timeout.Hello))
		c, err := id.Server(p.life, nc, secret)
		_ = nc.SetDeadline(time.Time{})
		p.mu.Lock()
		if peer.shaking == io.Closer(nc) {
			peer.shaking = nil
		}
		p.mu.Unlock()
		if err != nil {
			_ = nc.Close()
			p.log.Info("a link from an importer could not be encrypted", "importer", peer.id, "err", err)
			return
		}
		fd, err := unix.TakeOver(nc)
		if err != nil {
			p.log.Info("a connection could not be taken", "importer", peer.id, "err", err)
			return
		}
		p.takeOverBy(r, h, nil, fd, c)
	})
	return true
}

// takeOverBy goes on with a connection: an encrypted one has a secret.
func (p *Process) takeOverBy(r local.HandoverRequest, h *wire.Hello, malformed error, fd int, secret *encrypt.Conn) {
	p.joins.Lock() // of two attempts, the first has its link, or none, before the other is looked at
	defer p.joins.Unlock()
	p.mu.Lock()
	peer := p.waiting[r.Link]
	if peer != nil && peer.attempt == 0 { // the importer makes another link
		p.mu.Unlock()
		p.endAssociation(peer.id)
		p.mu.Lock()
		peer = p.waiting[r.Link]
	}
	var status wire.Status
	var old *link.Responder
	var a *association // of a new link
	switch {
	case malformed != nil || len(r.Challenge) != wire.ChallengeSize || r.Incarnation != p.id.Incarnation || peer == nil:
		status = wire.RefusedLink
	case p.closed:
		status = wire.RefusedGone
	case (peer.secret != nil) != (secret != nil):
		status = wire.RefusedClear
	case h.Attempt <= peer.attempt:
		status = wire.RefusedAttempt
	case peer.attempt > 0 && peer.in != nil && peer.in.Terms().ReconnectLimit == 0:
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
		if old == nil { // before the importer is answered, and may send
			a = p.beginLink(peer.id)
			// It has dialled with the key that it got when it asked, so it lived after the links before had ended.
			a.heard = a.heard || peer.asks
		}
	}
	var key []byte
	var order uint64
	if peer != nil {
		key, order = peer.key, peer.order
	}
	p.mu.Unlock()
	// Either side may want payloads checked, and both must want to resume.
	reply := wire.Answer{Status: status, Capabilities: (h.Capabilities|p.capabilities)&wire.Checked | h.Capabilities&p.capabilities&wire.Resumes}
	var binding []byte
	var cipher link.Cipher
	if secret != nil {
		reply.Capabilities |= wire.Encrypted
		binding, cipher = secret.Binding(), secret
		secret.Detach(reply.Capabilities&wire.Resumes != 0)
	}
	if status == wire.OK {
		reply.Proof = wire.Prove(key, wire.Exporter, r.Hello, r.Challenge, binding)
	}
	if old != nil {
		if err := old.Resume(fd, cipher, h.Applied, h.Notices, func(ended error, applied, partial uint64, credits uint32) error {
			if ended != nil {
				reply.Status, reply.Proof = wire.RefusedGone, [len(reply.Proof)]byte{}
			}
			reply.Applied, reply.Partial, reply.Credits = applied, partial, uint64(credits)
			return answer(fd, cipher, &reply)
		}); err != nil {
			p.log.Info("a link from an importer could not be resumed", "importer", peer.id, "err", err)
		}
		return
	}
	if err := answer(fd, cipher, &reply); err != nil || status != wire.OK {
		_ = unix.Close(fd)
		if a != nil {
			p.mu.Lock()
			p.endMaking(a)
			p.mu.Unlock()
		}
		return // the importer has its answer, or is gone
	}
	terms := p.terms(reply.Capabilities)
	terms.Cipher = cipher
	if terms.ReconnectLimit > 0 {
		// An importer that dials within the limit is heard, and the limit of one that sees the loss late begins
		// late: by its silence, which is taken to be like this process's (docs/models/silence.pml).
		terms.ReconnectLimit = min(terms.ReconnectLimit, endless) + timeout.Hello + min(terms.SilenceLimit, endless)
	}
	id := peer.id
	terms.PeerExited = func(ctx context.Context) (bool, error) { return p.departed(ctx, id) }
	if err := p.joinAlone(id, a, order, r.Link, fd, nil, terms); err != nil {
		p.log.Info("a link from an importer could not be begun", "importer", peer.id, "err", err)
	}
}

// endless is longer than any process lives, and the sum of two is still a time.
const endless = 100 * 365 * 24 * time.Hour

func answer(fd int, c link.Cipher, a *wire.Answer) (err error) {
	var n int
	if c != nil {
		n, err = c.Send(fd, a.Encode())
	} else {
		var io unix.IO
		n, err = io.Send(fd, a.Encode(), nil)
	}
	if err == nil && n != wire.AnswerSize {
		err = link.ErrGone // a fresh socket has room for it
	}
	return err
}

// departed asks the node whether another process is known to have ended. An error says why that is not known.
func (p *Process) departed(ctx context.Context, id local.ProcessID) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	d, fds, err := ask[local.Departure](ctx, p, local.Departed, id, nil)
	closeAll(fds)
	return err == nil && d.Departed, err
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

package vmmc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/handshake"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// linkTerms is what this process asks of links with other nodes, and how it dials them.
type linkTerms struct {
	*member
	capabilities uint64
	encrypt      bool // links must be encrypted
	identity     func() (*encrypt.Identity, error)
	silence      time.Duration
	resumeLimit  time.Duration
	dialer       func(ctx context.Context, address string) (net.Conn, error)
}

// secrecy decides whether a link with another node is encrypted, and returns the expected
// fingerprint of the importer's certificate.
func (t *linkTerms) secrecy(
	r *nodeproto.AcceptRequest,
) (s nodeproto.Secrecy, secret []byte, err error) {
	if !r.Encrypt && !t.encrypt {
		return s, nil, nil
	}
	if len(r.Fingerprint) != encrypt.PrintSize {
		return s, nil, code.New(code.NotImplemented, "links with process %d on node %q are to be encrypted, and it cannot do that: its vmmc, or its node's daemon, is older", t.id.PID, t.id.Node)
	}
	id, err := t.identity()
	if err != nil {
		return s, nil, err
	}
	return nodeproto.Secrecy{Encrypt: true, Fingerprint: id.Fingerprint()}, r.Fingerprint, nil
}

// dial makes a data connection to an exporter on another node. Both sides prove with fresh nonces
// that they hold the link's key before the first frame. h carries the attempt's number and what
// earlier attempts delivered. The cipher is non-nil for an encrypted link; the control connections
// decide that, and nothing received on the data connection can change it.
func (t *linkTerms) dial(
	ctx context.Context, c nodeproto.Connected, h wire.Hello,
) (fd int, cipher link.Cipher, a wire.Answer, err error) {
	nc, err := t.dialer(ctx, c.Address)
	if ctx.Err() != nil && err != nil {
		return -1, nil, a, fmt.Errorf("data address %s of the exporter's node: %w", c.Address, context.Cause(ctx))
	}
	if err != nil {
		var e net.Error
		if errors.As(err, &e) && e.Timeout() { // the dialler's own time-out, not the context's
			return -1, nil, a, code.New(code.Unreachable, "data address %s of the exporter's node: %v", c.Address, err)
		}
		return -1, nil, a, fmt.Errorf("%w: %w", code.New(code.Unreachable, "data address %s of the exporter's node", c.Address), err)
	}
	_ = nc.SetDeadline(time.Now().Add(timeout.Hello))
	givenUp := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	i := handshake.Importer{Link: c.Link, Key: c.Key, Capabilities: t.capabilities, Fingerprint: c.Fingerprint}
	if c.Encrypt {
		i.Identity, err = t.identity()
	}
	var conn *encrypt.Conn
	if err == nil {
		conn, a, err = i.Run(ctx, nc, h)
	}
	if !givenUp() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		return -1, nil, a, fmt.Errorf("hello to %s: %w", c.Address, err)
	}
	_ = nc.SetDeadline(time.Time{})
	fd, err = unix.TakeOver(nc.(*net.TCPConn))
	if conn != nil {
		conn.Detach(a.Capabilities&wire.Resumes != 0)
		cipher = conn
	}
	return fd, cipher, a, err
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout.Connect, Control: unix.BeginUnpaced}
	return d.DialContext(ctx, "tcp", address)
}

// agreed returns the terms that a link's hello and answer have agreed on.
func (t *linkTerms) agreed(capabilities uint64) link.Terms {
	terms := link.Terms{Checked: capabilities&wire.Checked != 0, SilenceLimit: t.silence}
	if capabilities&wire.Resumes != 0 {
		terms.ReconnectLimit = t.resumeLimit
	}
	return terms
}

// redial returns the function that resumes a link. A refusal means that there is nothing to resume;
// a broken connection says nothing about the exporter.
func (t *linkTerms) redial(exporter nodeproto.ProcessID, c nodeproto.Connected) link.Redial {
	return func(ctx context.Context, attempt, replied uint64, notices uint32) (int, link.Cipher, wire.Answer, error) {
		fd, cipher, a, err := t.dial(ctx, c, wire.Hello{Attempt: attempt, Applied: replied, Notices: notices})
		var s handshake.RefusedError
		switch {
		case err == nil:
		case errors.As(err, &s):
			switch gone, asked := t.hasDeparted(ctx, exporter); {
			case gone:
				err = link.Departed("process %d on node %q has ended: its node says so", exporter.PID, exporter.Node)
			case asked != nil:
				err = link.Gone("%w (whether the process has ended is not known: %v)", err, asked)
			default:
				err = link.Gone("%w", err)
			}
		case errors.Is(err, link.ErrGone):
			// the connection has ended; that says nothing about the process
			err = code.New(code.Unreachable, "%v", err)
		}
		return fd, cipher, a, err
	}
}

// interruptedError means that a connection could not be made or broke during the handshake: the
// exporter's daemon may have died just after it gave the address.
type interruptedError struct{ error }

func (i interruptedError) Unwrap() error { return i.error }

// handleHandover answers a dialled connection whose proof the daemon has checked. It answers on
// that very connection, and only if r names this process's incarnation.
func (t *importers) handleHandover(r nodeproto.HandoverRequest, fd int) error {
	h, err := wire.ParseHello(r.Hello)
	if err != nil || h.Capabilities&wire.Encrypted == 0 || !t.startTLS(r, &h, fd) {
		t.acceptDialled(r, &h, err, fd, nil)
	}
	return nil // the importer has its answer; the daemon must not answer as well
}

// startTLS starts the TLS handshake on a connection of an encrypted link, and reports whether the
// link is one. The handshake runs in the background, so a stalled importer delays no other.
func (t *importers) startTLS(r nodeproto.HandoverRequest, h *wire.Hello, fd int) bool {
	t.memory.mu.Lock()
	defer t.memory.mu.Unlock()
	peer := t.pendingDials[r.Link]
	if peer == nil || peer.fingerprint == nil || t.closed.Load() {
		return false
	}
	id, err := t.terms.identity()
	if err != nil {
		return false // unreachable: the identity was made when the importer got its fingerprint
	}
	nc, err := unix.Adopt(fd)
	if err != nil {
		t.log.Info("a connection could not be accepted", "importer", peer.id, "err", err)
		return true
	}
	if peer.pendingTLS != nil { // an importer that dials again has given up its previous attempt
		_ = peer.pendingTLS.Close()
	}
	peer.pendingTLS = nc
	fingerprint := peer.fingerprint
	t.begin(func() { // memory.mu is held, so the process is still open
		_ = nc.SetDeadline(time.Now().Add(timeout.Hello))
		c, err := id.Server(t.ctx, nc, fingerprint)
		_ = nc.SetDeadline(time.Time{})
		t.memory.mu.Lock()
		if peer.pendingTLS == io.Closer(nc) {
			peer.pendingTLS = nil
		}
		t.memory.mu.Unlock()
		if err != nil {
			_ = nc.Close()
			t.log.Info("a link from an importer could not be encrypted", "importer", peer.id, "err", err)
			return
		}
		fd, err := unix.TakeOver(nc)
		if err != nil {
			t.log.Info("a connection could not be accepted", "importer", peer.id, "err", err)
			return
		}
		t.acceptDialled(r, h, nil, fd, c)
	})
	return true
}

// acceptDialled starts or resumes the link on a dialled connection. conn is its TLS state, nil in
// clear.
func (t *importers) acceptDialled(
	r nodeproto.HandoverRequest, h *wire.Hello, malformed error, fd int, conn *encrypt.Conn,
) {
	// of two attempts, the first has its link, or has failed, before the second is looked at
	t.joinMu.Lock()
	defer t.joinMu.Unlock()
	t.memory.mu.Lock()
	peer := t.pendingDials[r.Link]
	if peer != nil && peer.attempt == 0 { // the importer makes another link
		t.memory.mu.Unlock()
		t.associations.end(peer.id)
		t.memory.mu.Lock()
		peer = t.pendingDials[r.Link]
	}
	var status wire.Status
	var old *link.Responder
	var a *association // of a new link
	switch {
	case malformed != nil || len(r.Challenge) != wire.ChallengeSize || r.Incarnation != t.id.Incarnation || peer == nil:
		status = wire.RefusedLink
	case t.closed.Load():
		status = wire.RefusedGone
	case (peer.fingerprint != nil) != (conn != nil):
		status = wire.RefusedClear
	case h.Attempt <= peer.attempt:
		status = wire.RefusedAttempt
	case peer.attempt > 0 && peer.responder != nil && peer.responder.Terms().ReconnectLimit == 0:
		status = wire.RefusedAttempt // one connection a link
	case peer.attempt > 0 && peer.responder == nil && h.Capabilities&wire.Resumes != 0:
		status = wire.RefusedGone // the link to be resumed has ended here
	default:
		old = peer.responder
		if peer.attempt == 0 {
			old = nil // a different link, which this one replaces
		}
		peer.attempt, peer.epoch = h.Attempt, r.Epoch
		peer.pendingJoins++
		defer t.endJoin(peer)
		if old == nil { // before the importer is answered, and may send
			a = t.associations.beginPendingLink(peer.id, true)
		}
	}
	var key []byte
	var order uint64
	if peer != nil {
		key, order = peer.key, peer.order
	}
	t.memory.mu.Unlock()
	reply := handshake.NewReply(status, h, t.terms.capabilities, fd, conn)
	var cipher link.Cipher
	if conn != nil {
		cipher = conn
	}
	if status == wire.OK {
		reply.Prove(key, r.Hello, r.Challenge)
	}
	if old != nil {
		if err := old.Resume(fd, cipher, h.Applied, h.Notices, func(ended error, applied, partial uint64, credits uint32) error {
			if ended != nil {
				reply.Refuse(wire.RefusedGone)
			}
			reply.Applied, reply.Partial, reply.Credits = applied, partial, uint64(credits)
			return reply.Send()
		}); err != nil {
			t.log.Info("a link from an importer could not be resumed", "importer", peer.id, "err", err)
		}
		return
	}
	if err := reply.Send(); err != nil || status != wire.OK {
		_ = unix.Close(fd)
		if a != nil {
			t.associations.endPendingLink(a)
		}
		return // the importer has its answer, or is gone
	}
	terms := t.terms.agreed(reply.Capabilities)
	terms.Cipher = cipher
	if terms.ReconnectLimit > 0 {
		// The exporter waits longer than the limit: for the handshake of an importer that dials
		// within it, and because an importer may detect the loss later by its silence time-out,
		// taken to equal this process's (docs/models/silence.pml).
		terms.ReconnectLimit = min(terms.ReconnectLimit, unlimited) + timeout.Hello + min(terms.SilenceLimit, unlimited)
	}
	id := peer.id
	terms.PeerExited = func(ctx context.Context) (bool, error) { return t.hasDeparted(ctx, id) }
	if err := t.joinLinkLocked(id, a, order, r.Link, fd, nil, terms); err != nil {
		t.log.Info("a link from an importer could not be started", "importer", peer.id, "err", err)
	}
}

// unlimited is longer than any process lives; the sum of two does not overflow.
const unlimited = 100 * 365 * 24 * time.Hour

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
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// secrecy decides whether a link with another node is encrypted, and returns the expected
// fingerprint of the importer's certificate.
func (p *Process) secrecy(r *nodeproto.AcceptRequest) (s nodeproto.Secrecy, secret []byte, err error) {
	if !r.Encrypt && !p.encrypt {
		return s, nil, nil
	}
	if len(r.Fingerprint) != encrypt.PrintSize {
		return s, nil, code.New(code.NotImplemented, "links with process %d on node %q are to be encrypted, and it cannot do that: its vmmc, or its node's daemon, is older", p.id.PID, p.id.Node)
	}
	id, err := p.identity()
	if err != nil {
		return s, nil, err
	}
	return nodeproto.Secrecy{Encrypt: true, Fingerprint: id.Fingerprint()}, r.Fingerprint, nil
}

// dial makes a data connection to an exporter on another node. Both sides prove with fresh nonces
// that they hold the link's key before the first frame. h carries the attempt's number and what
// earlier attempts delivered. The cipher is non-nil for an encrypted link; the control connections
// decide that, and nothing received on the data connection can change it.
func (p *Process) dial(ctx context.Context, c nodeproto.Connected, h wire.Hello) (fd int, cipher link.Cipher, a wire.Answer, err error) {
	nc, err := p.dialer(ctx, c.Address)
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
	h.MinVersion, h.MaxVersion, h.Link, h.Nonce, h.Capabilities = wire.MinVersion, wire.MaxVersion, c.Link, wire.NewNonce(), p.capabilities
	var conn *encrypt.Conn
	if c.Encrypt {
		h.Capabilities |= wire.Encrypted
		conn, a, err = p.encryptedHello(ctx, nc, &c, &h)
	} else {
		a, err = clearHello(nc, c.Key, &h)
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

// clearHello is the handshake of an unencrypted link.
func clearHello(nc net.Conn, key []byte, h *wire.Hello) (a wire.Answer, err error) {
	raw, challenge, err := sendProof(nc, key, h)
	if err != nil {
		return a, err
	}
	return readAnswer(nc, key, raw, challenge, nil)
}

// encryptedHello is the handshake of an encrypted link. TLS begins after the proof. The answer
// comes over TLS, with a proof that is bound to this connection.
func (p *Process) encryptedHello(ctx context.Context, nc net.Conn, c *nodeproto.Connected, h *wire.Hello) (*encrypt.Conn, wire.Answer, error) {
	id, err := p.identity()
	if err != nil {
		return nil, wire.Answer{}, err
	}
	raw, challenge, err := sendProof(nc, c.Key, h)
	if err != nil {
		return nil, wire.Answer{}, err
	}
	conn, err := id.Client(ctx, &refusableConn{Conn: nc}, c.Fingerprint)
	switch {
	case errors.Is(err, encrypt.ErrStranger):
		return nil, wire.Answer{}, code.New(code.NoRights, "%v", err)
	case errors.Is(err, io.EOF):
		return nil, wire.Answer{}, code.New(code.PeerGone, "the exporting process closed the connection, or has ended")
	case err != nil:
		return nil, wire.Answer{}, err
	}
	a, err := readAnswer(conn, c.Key, raw, challenge, conn.Binding())
	return conn, a, err
}

// refusableConn is a connection on which a refusal in clear may come in place of the TLS handshake.
type refusableConn struct {
	net.Conn
	passed bool
}

func (r *refusableConn) Read(b []byte) (int, error) {
	if r.passed || len(b) == 0 {
		return r.Conn.Read(b)
	}
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(r.Conn, answer[:1]); err != nil {
		return 0, err
	}
	r.passed = true
	if answer[0] != wire.Magic[0] {
		b[0] = answer[0]
		return 1, nil
	}
	if _, err := io.ReadFull(r.Conn, answer[1:]); err != nil {
		return 0, err
	}
	_, err := wire.ParseAnswer(answer)
	if err == nil {
		err = code.New(code.Protocol, "the exporter's side answers in clear, of a link that is to be encrypted")
	}
	return 0, refusalError(err)
}

// sendProof sends the importer's hello and its proof, in clear.
func sendProof(nc net.Conn, key []byte, h *wire.Hello) (raw, challenge []byte, err error) {
	raw = h.Encode()
	if _, err := nc.Write(raw); err != nil {
		return nil, nil, err
	}
	challenge = make([]byte, wire.ChallengeSize)
	if _, err := io.ReadFull(nc, challenge); err != nil {
		return nil, nil, err
	}
	if _, err := wire.ParseChallenge(challenge); err != nil {
		return nil, nil, refusalError(err)
	}
	proof := wire.Prove(key, wire.Importer, raw, challenge, nil)
	_, err = nc.Write(proof[:])
	return raw, challenge, err
}

// readAnswer reads and verifies the exporter's answer.
func readAnswer(from io.Reader, key, raw, challenge, binding []byte) (a wire.Answer, err error) {
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(from, answer); err != nil {
		if errors.Is(err, io.EOF) {
			return a, code.New(code.PeerGone, "the exporting process closed the connection, or has ended")
		}
		return a, err
	}
	if a, err = wire.ParseAnswer(answer); err != nil {
		return a, refusalError(err)
	}
	if !wire.Verify(key, wire.Exporter, raw, challenge, binding, a.Proof[:]) {
		return a, code.New(code.NoRights, "who answered does not hold the link's key")
	}
	return a, nil
}

// linkTerms returns the terms that a link's hello and answer have agreed on.
func (p *Process) linkTerms(capabilities uint64) link.Terms {
	t := link.Terms{Checked: capabilities&wire.Checked != 0, SilenceLimit: p.silence}
	if capabilities&wire.Resumes != 0 {
		t.ReconnectLimit = p.resumeLimit
	}
	return t
}

// redial returns the function that resumes a link. A refusal means that there is nothing to resume;
// a broken connection says nothing about the exporter.
func (p *Process) redial(exporter nodeproto.ProcessID, c nodeproto.Connected) link.Redial {
	return func(ctx context.Context, attempt, replied uint64, notices uint32) (int, link.Cipher, wire.Answer, error) {
		fd, cipher, a, err := p.dial(ctx, c, wire.Hello{Attempt: attempt, Applied: replied, Notices: notices})
		var s refusedError
		switch {
		case err == nil:
		case errors.As(err, &s):
			switch gone, asked := p.hasDeparted(ctx, exporter); {
			case gone:
				err = link.Departed("process %d on node %q has ended: its node says so", exporter.PID, exporter.Node)
			case asked != nil:
				err = link.Gone("%w (whether the process has ended is not known: %v)", err, asked)
			default:
				err = link.Gone("%w", err)
			}
		case errors.Is(err, link.ErrGone): // the connection has ended; that says nothing about the process
			err = code.New(code.Unreachable, "%v", err)
		}
		return fd, cipher, a, err
	}
}

// refusedError is a refusal that a node or an exporter sent.
type refusedError struct{ error }

func (r refusedError) Unwrap() error { return r.error }

// retryLaterError is the answer of a restarted node whose processes have not all rejoined yet.
type retryLaterError struct{ error }

func (l retryLaterError) Unwrap() error { return l.error }

// interruptedError means that a connection could not be made or broke during the handshake: the
// exporter's daemon may have died just after it gave the address.
type interruptedError struct{ error }

func (i interruptedError) Unwrap() error { return i.error }

// connectionBroke reports whether the connection ended, rather than a refusal or a time-out.
func connectionBroke(err error) bool {
	if errors.As(err, new(refusedError)) {
		return false
	}
	var e net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, code.PeerGone) ||
		errors.As(err, &e) && !e.Timeout()
}

// refusalError converts a refusal status into an error with its code.
func refusalError(err error) error {
	if s, ok := err.(wire.Status); ok { //nolint:errorlint // a Status is returned as it is
		switch s {
		case wire.RefusedLater:
			return retryLaterError{code.New(code.Unreachable, "%v", s)}
		case wire.RefusedGone:
			return refusedError{code.New(code.PeerGone, "%v", s)}
		case wire.RefusedLink: // all its grants were revoked meanwhile
			return refusedError{code.New(code.BadRbufState, "%v", s)}
		case wire.RefusedVersion:
			return refusedError{code.New(code.Protocol, "%v", s)}
		default:
			return refusedError{code.New(code.NoRights, "%v", s)}
		}
	}
	return err
}

// handleHandover answers a dialled connection whose proof the daemon has checked. It answers on
// that very connection, and only if r names this process's incarnation.
func (p *Process) handleHandover(r nodeproto.HandoverRequest, fd int) error {
	h, err := wire.ParseHello(r.Hello)
	if err != nil || h.Capabilities&wire.Encrypted == 0 || !p.startTLS(r, &h, fd) {
		p.acceptDialled(r, &h, err, fd, nil)
	}
	return nil // the importer has its answer; the daemon must not answer as well
}

// startTLS starts the TLS handshake on a connection of an encrypted link, and reports whether the
// link is one. The handshake runs in the background, so a stalled importer delays no other.
func (p *Process) startTLS(r nodeproto.HandoverRequest, h *wire.Hello, fd int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.pendingDials[r.Link]
	if peer == nil || peer.fingerprint == nil || p.closed {
		return false
	}
	id, err := p.identity()
	if err != nil {
		return false // unreachable: the identity was made when the importer got its fingerprint
	}
	nc, err := unix.Adopt(fd)
	if err != nil {
		p.log.Info("a connection could not be taken", "importer", peer.id, "err", err)
		return true
	}
	if peer.pendingTLS != nil { // an importer that dials again has given up its previous attempt
		_ = peer.pendingTLS.Close()
	}
	peer.pendingTLS = nc
	fingerprint := peer.fingerprint
	p.background.Go(func() {
		_ = nc.SetDeadline(time.Now().Add(timeout.Hello))
		c, err := id.Server(p.ctx, nc, fingerprint)
		_ = nc.SetDeadline(time.Time{})
		p.mu.Lock()
		if peer.pendingTLS == io.Closer(nc) {
			peer.pendingTLS = nil
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
		p.acceptDialled(r, h, nil, fd, c)
	})
	return true
}

// acceptDialled starts or resumes the link on a dialled connection. conn is its TLS state, nil in
// clear.
func (p *Process) acceptDialled(r nodeproto.HandoverRequest, h *wire.Hello, malformed error, fd int, conn *encrypt.Conn) {
	p.joinMu.Lock() // of two attempts, the first has its link, or has failed, before the second is looked at
	defer p.joinMu.Unlock()
	p.mu.Lock()
	peer := p.pendingDials[r.Link]
	if peer != nil && peer.attempt == 0 { // the importer makes another link
		p.mu.Unlock()
		p.endAssociation(peer.id)
		p.mu.Lock()
		peer = p.pendingDials[r.Link]
	}
	var status wire.Status
	var old *link.Responder
	var a *association // of a new link
	switch {
	case malformed != nil || len(r.Challenge) != wire.ChallengeSize || r.Incarnation != p.id.Incarnation || peer == nil:
		status = wire.RefusedLink
	case p.closed:
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
		defer p.endJoin(peer)
		if old == nil { // before the importer is answered, and may send
			a = p.beginPendingLink(peer.id)
			// It has dialled with the key that it got when it asked, so it lived after the links
			// before had ended.
			a.seenAlive = a.seenAlive || peer.asks
		}
	}
	var key []byte
	var order uint64
	if peer != nil {
		key, order = peer.key, peer.order
	}
	p.mu.Unlock()
	// One side is enough for payload checksums; resuming needs both.
	reply := wire.Answer{Status: status, Capabilities: (h.Capabilities|p.capabilities)&wire.Checked | h.Capabilities&p.capabilities&wire.Resumes}
	var binding []byte
	var cipher link.Cipher
	if conn != nil {
		reply.Capabilities |= wire.Encrypted
		binding, cipher = conn.Binding(), conn
		conn.Detach(reply.Capabilities&wire.Resumes != 0)
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
			return sendAnswer(fd, cipher, &reply)
		}); err != nil {
			p.log.Info("a link from an importer could not be resumed", "importer", peer.id, "err", err)
		}
		return
	}
	if err := sendAnswer(fd, cipher, &reply); err != nil || status != wire.OK {
		_ = unix.Close(fd)
		if a != nil {
			p.mu.Lock()
			p.endPendingLink(a)
			p.mu.Unlock()
		}
		return // the importer has its answer, or is gone
	}
	terms := p.linkTerms(reply.Capabilities)
	terms.Cipher = cipher
	if terms.ReconnectLimit > 0 {
		// The exporter waits longer than the limit: for the handshake of an importer that dials
		// within it, and because an importer may detect the loss later by its silence time-out,
		// taken to equal this process's (docs/models/silence.pml).
		terms.ReconnectLimit = min(terms.ReconnectLimit, unlimited) + timeout.Hello + min(terms.SilenceLimit, unlimited)
	}
	id := peer.id
	terms.PeerExited = func(ctx context.Context) (bool, error) { return p.hasDeparted(ctx, id) }
	if err := p.joinLinkLocked(id, a, order, r.Link, fd, nil, terms); err != nil {
		p.log.Info("a link from an importer could not be begun", "importer", peer.id, "err", err)
	}
}

// unlimited is longer than any process lives; the sum of two does not overflow.
const unlimited = 100 * 365 * 24 * time.Hour

func sendAnswer(fd int, c link.Cipher, a *wire.Answer) (err error) {
	var n int
	if c != nil {
		n, err = c.Send(fd, a.Encode())
	} else {
		var io unix.IO
		n, err = io.Send(fd, a.Encode(), nil)
	}
	if err == nil && n != wire.AnswerSize {
		err = link.ErrGone // a fresh socket always has buffer space for it
	}
	return err
}

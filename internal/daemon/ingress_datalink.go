package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// dataLink checks a dialling importer and hands the connection to the exporter.
// first is the byte that was read already. The caller closes c: the exporter
// has a descriptor of its own by then. proved is called when the proof was checked.
func (n *Node) dataLink(c *net.TCPConn, first byte, proved func()) error {
	raw := make([]byte, wire.HelloSize)
	raw[0] = first
	if _, err := io.ReadFull(c, raw[1:]); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	h, err := wire.ParseHello(raw)
	if err != nil {
		return err
	}
	v, err := h.Version()
	if err != nil {
		return refuse(c, wire.RefusedVersion, err)
	}
	later := n.journal.anyExpected() // read before the lookup: a rejoining process announces its links before it stops being expected
	n.mu.Lock()
	d := n.pendingLinks[h.Link]
	n.mu.Unlock()
	later = later || n.journal.anyExpected() // and after it: a process that was cut off is expected before its links are removed
	// An unknown link is challenged like a known one, so that a stranger does
	// not learn which links exist; no key verifies for it.
	key := []byte(nil)
	if d != nil {
		key = d.key
	}
	ch := wire.Challenge{Version: v, Nonce: wire.NewNonce()}
	challenge := ch.Encode()
	if _, err := c.Write(challenge); err != nil {
		return fmt.Errorf("challenge: %w", err)
	}
	proof := make([]byte, wire.ProofSize)
	if n, err := io.ReadFull(c, proof); n == 0 && h.Link == probeLinkNumber {
		return nil // a probe of the data port
	} else if err != nil {
		return fmt.Errorf("proof: %w", err)
	}
	if d == nil && later {
		_ = answer(c, wire.RefusedLater, nil)
		return nil
	}
	if d == nil {
		return answer(c, wire.RefusedLink, fmt.Errorf("link %#x: %w", h.Link, wire.RefusedLink))
	}
	if !wire.Verify(key, wire.Importer, raw, challenge, nil, proof) {
		return answer(c, wire.RefusedProof, fmt.Errorf("link %#x: %w", h.Link, wire.RefusedProof))
	}
	proved()
	n.mu.Lock()
	d.redialable = d.redialable || h.Capabilities&wire.Resumes != 0
	n.mu.Unlock()
	if err := d.exporter.handOver(c, nodeproto.HandoverRequest{
		Link: h.Link, Incarnation: d.exporter.id.Load().Incarnation, Hello: raw, Challenge: challenge, Epoch: d.epoch,
	}); err != nil {
		if errors.Is(err, code.NoSuchProcess) || errors.Is(err, code.Timeout) {
			return err // it may have answered already: closing says enough
		}
		return answer(c, wire.RefusedGone, err)
	}
	n.driverLog.Info("a link was accepted", "link", fmt.Sprintf("%#x", h.Link), "from", c.RemoteAddr(), "exporter", *d.exporter.id.Load())
	return nil
}

// handOver passes the connection on the control connection that was checked.
func (p *process) handOver(c *net.TCPConn, r nodeproto.HandoverRequest) error {
	select {
	case p.pendingHandovers <- struct{}{}:
		defer func() { <-p.pendingHandovers }()
	case <-time.After(timeout.Hello):
		return code.New(code.Timeout, "process %d leaves %d connections unanswered", p.id.Load().PID, maxHandovers)
	}
	_ = c.SetDeadline(time.Time{})
	fd, err := unix.Borrow(c)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ctx, stop := context.WithTimeout(context.Background(), timeout.Control)
	defer stop()
	fds, err := p.conn.Call(ctx, nodeproto.Handover, r, []int{fd}, nil)
	closeAll(fds) // an honest process sends none
	return p.answerError(err)
}

// refuse answers a hello that goes no further.
func refuse(c net.Conn, s wire.Status, err error) error {
	ch := wire.Challenge{Status: s, Version: wire.MaxVersion}
	_, _ = c.Write(ch.Encode())
	return err
}

// answer refuses after the proof.
func answer(c net.Conn, s wire.Status, err error) error {
	a := wire.Answer{Status: s}
	_, _ = c.Write(a.Encode())
	return err
}

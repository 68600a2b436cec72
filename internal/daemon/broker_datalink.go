package daemon

import (
	"errors"
	"fmt"
	"net"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/handshake"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// dataLink checks a dialling importer and hands the connection to the exporter.
// first is the byte that was read already. The caller closes c: the exporter
// has a descriptor of its own by then. proved is called when the proof was checked.
func (b *broker) dataLink(c *net.TCPConn, first byte, proved func()) error {
	n := b.n
	r, err := handshake.Receive(c, first)
	if err != nil {
		return err
	}
	number := r.Hello.Link
	// Read before the lookup: a returning process announces its links before it is joined.
	later := n.registry.journal.AnyAbsent()
	d := b.find(number)
	// And after it: a process that was cut off is expected before its links are removed.
	later = later || n.registry.journal.AnyAbsent()
	// An unknown link is challenged like a known one, so that an unauthenticated peer does not learn
	// which links exist.
	if probe, err := r.ReadProof(c); probe || err != nil {
		return err
	}
	switch {
	case d == nil && later:
		handshake.Refuse(c, wire.RefusedLater)
		return nil
	case d == nil:
		handshake.Refuse(c, wire.RefusedLink)
		return fmt.Errorf("link %#x: %w", number, wire.RefusedLink)
	case !r.Proved(d.key):
		handshake.Refuse(c, wire.RefusedProof)
		return fmt.Errorf("link %#x: %w", number, wire.RefusedProof)
	}
	proved()
	if r.Hello.Capabilities&wire.Resumes != 0 {
		b.allowRedial(d)
	}
	if err := d.exporter.handOver(c, nodeproto.HandoverRequest{
		Link: number, Incarnation: d.exporter.id.Load().Incarnation, Hello: r.Raw, Challenge: r.Challenge,
		Epoch: d.epoch,
	}); err != nil {
		if errors.Is(err, code.NoSuchProcess) || errors.Is(err, code.Timeout) {
			return err // it may have answered already: closing says enough
		}
		handshake.Refuse(c, wire.RefusedGone)
		return err
	}
	n.logs.DriverFile.Info("a link was accepted", "link", fmt.Sprintf("%#x", number), "from",
		c.RemoteAddr(), "exporter", *d.exporter.id.Load())
	return nil
}

package vmmc

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
)

// Rejoin is the way back after an import has ended that its own process has not closed: its exporter
// has closed the export and made it again, or the link has failed. It imports the buffer of the same id from the same
// process again, waits for it as [Process.Import] does, and closes the old import. A process that was started
// again has another number, which [Import.RejoinAt] takes.
//
// The new import has the length of the old one and all of its rights, or the error is [ErrStaleImport]: then
// it is another buffer, which the program may import if it knows what to do with it. Permissions
// are checked as for any import. Nothing that was sent on the old import is sent again: what
// its calls returned holds. The new one has addresses of its own in DestSpace ([Import.Addr]), and no bindings: bind
// again, which sends the whole of the bound memory. Handlers are the exporter's and need nothing.
//
// An import that has not ended is returned as it is. The errors are those of [Process.Import], and
// [ErrClosed] for an import that its own process has closed.
func (im *Import) Rejoin(ctx context.Context) (*Import, error) { return im.RejoinAt(ctx, im.peer) }

// RejoinAt is [Import.Rejoin] from another process, which has taken the place of the exporter. It is for the
// program to know which that is.
func (im *Import) RejoinAt(ctx context.Context, peer ProcessID) (*Import, error) {
	op := fmt.Sprintf("rejoin buffer %d (%d bytes)", im.id, im.size)
	if err := inHandler(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, im.rejoinFailed(op, peer, errNilContext)
	}
	err := im.alive()
	if im.closed.Load() {
		err = link.ErrClosed
	}
	if err == nil && im.mapped != nil { // the notice of its end may be on its way
		err = im.mapped.Alive()
	}
	switch {
	case err == nil && peer == im.peer:
		return im, nil
	case im.closed.Load():
		return nil, im.rejoinFailed(op, peer, err)
	}
	again, err := im.p.Import(ctx, peer.Node, peer.PID, im.id)
	if err != nil {
		return nil, im.rejoinFailed(op, peer, err)
	}
	if again.size != im.size || im.rights&^again.rights != 0 {
		err := code.New(code.StaleImport, "it has %d bytes and rights %#x now, and had %d and %#x: import it as what it is", again.size, again.rights, im.size, im.rights)
		return nil, im.rejoinFailed(op, peer, errors.Join(err, again.Close()))
	}
	if err := im.Close(); err != nil {
		return nil, im.rejoinFailed(op, peer, errors.Join(err, again.Close()))
	}
	return again, nil
}

func (im *Import) rejoinFailed(op string, peer ProcessID, err error) error {
	f := fail(op, err)
	f.Peer = peer.String()
	return f
}

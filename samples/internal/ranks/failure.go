package ranks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
)

// A spawned process has nowhere to print: what it has to say when it fails goes
// into the master's memory, with a notification.

// telling bounds how long a failing member tries to say why.
const telling = 2 * time.Second

// hearFailures offers memory for the failures of n members.
func (m *Member) hearFailures(n int) error {
	mem, err := m.Process.Alloc(max(n, 2) * maxFailure)
	if err != nil {
		return err
	}
	m.failures = mem.Bytes()
	_, err = m.Process.Export(failureBuffer, m.failures, vmmc.WriteOnly(), vmmc.WithHandler(m.failed))
	return err
}

// failed is run when a member has said why it fails.
func (m *Member) failed(n vmmc.Notification) {
	rank := n.Offset / maxFailure
	area := m.failures[rank*maxFailure:][:maxFailure]
	text, err := unseal(area)
	if err != nil {
		text = []byte(err.Error())
	}
	if m.quitting.Load() {
		return
	}
	if rank == 0 {
		m.cancel(fmt.Errorf("a spawned process, before it had a rank: %s", text))
	} else {
		m.cancel(fmt.Errorf("rank %d: %s", rank, text))
	}
}

// tell says to the master why this member fails.
func (m *Member) tell(why error) {
	// A context of its own: the run's is over.
	ctx, stop := context.WithTimeout(context.Background(), telling)
	defer stop()
	note := seal(short(why.Error(), maxFailure))
	off := (m.area+1)*maxFailure - len(note)
	if m.toldTo.SendNotify(ctx, note, off) == nil {
		_ = m.toldTo.Fence(ctx) // on an error there is no parent left to tell
	}
}

// explain finds out why a call failed: a peer's end shows first in whatever was
// just being done with it, and its reason is told a moment later.
func (m *Member) explain(err error) error {
	if errors.Is(err, vmmc.ErrPeerGone) || errors.Is(err, vmmc.ErrRevoked) ||
		errors.Is(err, vmmc.ErrNoSuchProcess) {
		select {
		case <-m.ctx.Done():
		case <-time.After(telling / 2):
		}
	}
	if cause := context.Cause(m.ctx); cause != nil {
		return cause
	}
	return err
}

package link

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Answerer says whether the importer of a link may import buffer id, and enters it
// in the exporter's tables if so; then there is a target, and the descriptor of a
// mapped grant, which the link owns. It must answer at once. It is called with rmu
// held, so the end of the export that it grants comes later on the link.
type Answerer func(in *In, id uint32) (t *Target, g wire.Granted, fd int)

// granting is an answer to an import that is to be written.
type granting struct {
	h  wire.Header
	fd int // -1: none goes with it
}

// sought answers an import.
func (in *In) sought(h *wire.Header) error {
	if in.pages == nil || in.answerer == nil {
		return protocol("an import on a link that takes none")
	}
	in.tmu.Lock()
	full := len(in.tx.grants) >= maxSeeks
	in.tmu.Unlock()
	if full {
		return protocol("more than %d imports unanswered", maxSeeks)
	}
	t, g, fd := in.answerer(in, h.Handle)
	if t != nil {
		in.targets[t.Handle], in.near = t, nil
	} else {
		g, fd = wire.Granted{}, -1
	}
	a := granting{fd: fd}
	a.h.SetGranted(h.Serial, &g)
	in.speaks = true
	in.tmu.Lock()
	in.tx.grants = append(in.tx.grants, a)
	in.tmu.Unlock()
	return nil
}

// grant writes the oldest answer to an import, by a call of its own, for a
// descriptor may go with it. All frames begun before are written. It says whether
// the socket had room.
func (s *stream) grant() bool {
	t := &s.tx
	a := &t.grants[0]
	head := t.buf[:wire.HeaderSize]
	a.h.Put(head, t.number)
	n, err := 0, error(nil)
	if a.fd >= 0 {
		var ok bool
		if n, ok, err = t.io.SendPassed(s.fd, head, a.fd); !ok { // it is not for its importer to wait until there is room
			_ = unix.Close(a.fd)
			a.fd = -1
			a.h.SetGranted(a.h.Serial, &wire.Granted{Handle: a.h.Handle})
			a.h.Put(head, t.number)
		}
	}
	if a.fd < 0 {
		n, err = t.io.Send(s.fd, head, nil)
	}
	if err != nil {
		s.fail(s.broke(err))
		return false
	}
	if n == 0 {
		s.stick()
		return false
	}
	if t.number++; n < len(head) {
		t.parts[0].head, t.count, t.begun = head[n:], 1, t.begun+1
	}
	if a.fd >= 0 {
		_ = unix.Close(a.fd)
	}
	if t.grants = slices.Delete(t.grants, 0, 1); len(t.grants) == 0 {
		t.grants = nil
	}
	return true
}

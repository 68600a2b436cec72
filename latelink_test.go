package vmmc_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// crown is a daemon of which one process is a subject: it says what the process
// is asked, and in which order.
type crown struct {
	*local.Conn
	p      *vmmc.Process
	events chan vmmc.Event
}

func newCrown(t *testing.T) *crown {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := &crown{events: make(chan vmmc.Event, 16)}
	come := make(chan struct{})
	go func() {
		defer close(come)
		c, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		w.Conn = local.NewConn(c, func(_ context.Context, m local.Method, _ []byte, fds []int) (any, []int, error) {
			closeAll(fds)
			if m == local.Register {
				return local.Welcome{Process: local.ProcessID{Node: "a", PID: 1, Incarnation: 5}}, nil, nil
			}
			return local.Empty{}, nil, nil
		})
	}()
	if w.p, err = vmmc.Open(t.Context(), vmmc.WithSocket(path), vmmc.WithEvents(func(e vmmc.Event) { w.events <- e })); err != nil {
		t.Fatal(err)
	}
	<-come
	t.Cleanup(func() {
		if err := w.p.Close(); err != nil {
			t.Error(err)
		}
		w.Close()
		<-w.Done()
	})
	if _, err := w.p.Export(7, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	return w
}

// leaves ends the link that the importer uses. Of all its links this is the first whose end says that
// the importer is gone.
func (w *crown) leaves(t *testing.T, r *raid) {
	t.Helper()
	_ = unix.Close(r.fd)
	r.fd = -1
	select {
	case e := <-w.events:
		if e.Kind != vmmc.PeerGone || !errors.Is(e.Err, vmmc.ErrPeerGone) || len(w.events) > 0 {
			t.Errorf("%q: %v, and %d other events", e.Kind, e.Err, len(w.events))
		}
	case <-time.After(bound):
		t.Error("nobody says that the importer is gone")
	}
}

func (w *crown) offer(t *testing.T, id local.ProcessID) {
	t.Helper()
	r := local.OfferRequest{Importer: local.Importer{Process: id}, ID: 7, Serial: 1, SameNode: id.Node == "a"}
	_, fds, err := local.Ask[local.Grant](t.Context(), w.Conn, local.Offer, r, nil)
	closeAll(fds)
	if err != nil {
		t.Fatal(err)
	}
}

// accept introduces a link on one node.
func (w *crown) accept(t *testing.T, id local.ProcessID, order uint64) (*raid, error) {
	t.Helper()
	mine, err := page.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mine.Retire)
	ring, err := page.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Retire)
	pages := []int{descriptor(t, mine.Region), descriptor(t, ring.Region)}
	defer closeAll(pages)
	r := local.AcceptRequest{Link: order, Order: order, Importer: id, SameNode: true}
	_, fds, err := local.Ask[local.Empty](t.Context(), w.Conn, local.Accept, r, pages)
	if err != nil {
		return nil, err
	}
	closeAll(fds[:2])
	return newRaid(t, fds[2], ring, page.Exporter{}), nil
}

// introduce is accept between nodes; hand gives the process the connection.
func (w *crown) introduce(t *testing.T, id local.ProcessID, order uint64) error {
	t.Helper()
	r := local.AcceptRequest{Link: order, Order: order, Importer: id, Key: make([]byte, wire.KeySize)}
	_, err := w.Call(t.Context(), local.Accept, r, nil, nil)
	return err
}

func (w *crown) hand(t *testing.T, order uint64) *raid {
	t.Helper()
	near, far := socketPair(t)
	h := wire.Hello{MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Link: order, Attempt: 1}
	r := local.HandoverRequest{Link: order, Incarnation: 5, Hello: h.Encode(), Challenge: make([]byte, wire.ChallengeSize), Epoch: 1}
	_, err := w.Call(t.Context(), local.Handover, r, []int{far}, nil)
	_ = unix.Close(far)
	if err != nil {
		t.Fatal(err)
	}
	b, err := near.hear(t)
	if err == nil {
		_, err = wire.ParseAnswer(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return near
}

func socketPair(t *testing.T) (near *raid, far int) {
	t.Helper()
	a, b, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	return newRaid(t, a, page.Importer{}, page.Exporter{}), b
}

// A link that its importer has given up, and that begins only when the next one is
// there, does not cut that one.
func TestLinkComesLate(t *testing.T) {
	late := func(t *testing.T, err error) {
		t.Helper()
		if !errors.Is(err, code.BadRbufState) {
			t.Errorf("a link that was introduced before another one began after it: %v", err)
		}
	}
	t.Run("one node", func(t *testing.T) {
		w := newCrown(t)
		id := local.ProcessID{Node: "a", PID: 2, Incarnation: 6}
		w.offer(t, id)
		used, err := w.accept(t, id, 2)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.accept(t, id, 1)
		late(t, err)
		used.answers(t)
		next, err := w.accept(t, id, 3)
		if err != nil {
			t.Fatal(err)
		}
		used.over(t)
		next.answers(t)
		w.leaves(t, next)
	})
	t.Run("between nodes", func(t *testing.T) {
		w := newCrown(t)
		id := local.ProcessID{Node: "b", PID: 2, Incarnation: 6}
		w.offer(t, id)
		if err := w.introduce(t, id, 2); err != nil {
			t.Fatal(err)
		}
		late(t, w.introduce(t, id, 1))
		used := w.hand(t, 2)
		old, fd := socketPair(t)
		late(t, vmmc.JoinLate(w.p, id, 1, fd))
		old.over(t)
		used.answers(t)
		if err := w.introduce(t, id, 3); err != nil {
			t.Fatal(err)
		}
		next := w.hand(t, 3)
		used.over(t)
		next.answers(t)
		w.leaves(t, next)
	})
}

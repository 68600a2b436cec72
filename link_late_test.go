package vmmc_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// fakeDaemon is a daemon of which one process is a subject: it says what the process
// is asked, and in which order.
type fakeDaemon struct {
	*nodeproto.Conn
	p      *vmmc.Process
	events chan vmmc.Event
	answer atomic.Pointer[func(m nodeproto.Method) any] // what the process is answered from now on; nil: nothing
}

// answers says what the process is answered from now on.
func (w *fakeDaemon) answers(f func(m nodeproto.Method) any) { w.answer.Store(&f) }

func newFakeDaemon(t *testing.T, opts ...vmmc.Option) *fakeDaemon {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := &fakeDaemon{events: make(chan vmmc.Event, 16)}
	come := make(chan struct{})
	go func() {
		defer close(come)
		c, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		w.Conn = nodeproto.NewConn(c, func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
			closeAll(fds)
			if f := w.answer.Load(); f != nil {
				a := (*f)(m)
				if err, ok := a.(error); ok {
					return nil, nil, err
				}
				return a, nil, nil
			}
			if m == nodeproto.Register {
				return nodeproto.Welcome{Process: nodeproto.ProcessID{Node: "a", PID: 1, Incarnation: 5}, Names: true}, nil, nil
			}
			return nodeproto.Empty{}, nil, nil
		})
	}()
	opts = append(opts, vmmc.WithSocket(path), vmmc.WithEvents(func(e vmmc.Event) { w.events <- e }))
	if w.p, err = vmmc.Open(t.Context(), opts...); err != nil {
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

// leaves ends the link that the importer uses. Of all its links this is the first whose end says
// that the importer is gone.
func (w *fakeDaemon) leaves(t *testing.T, r *hostileLink) {
	t.Helper()
	_ = unix.Close(r.fd)
	r.fd = -1
	select {
	case e := <-w.events:
		if e.Kind != vmmc.PeerGone || !errors.Is(e.Err, vmmc.ErrPeerGone) || len(w.events) > 0 {
			t.Errorf("%q: %v, and %d other events", e.Kind, e.Err, len(w.events))
		}
	case <-time.After(bound):
		t.Error("no event says that the importer is gone")
	}
}

// told is the next event.
func (w *fakeDaemon) told(t *testing.T, want vmmc.EventKind) (e vmmc.Event) {
	t.Helper()
	select {
	case e = <-w.events:
		if e.Kind != want {
			t.Errorf("%q: %v, want %q", e.Kind, e.Err, want)
		}
	case <-time.After(bound):
		t.Errorf("nothing is told, want %q", want)
	}
	return e
}

func (w *fakeDaemon) offer(t *testing.T, id nodeproto.ProcessID) (handle uint32) {
	t.Helper()
	r := nodeproto.OfferRequest{Importer: nodeproto.Importer{Process: id}, ID: 7, Serial: 1, SameNode: id.Node == "a"}
	g, fds, err := nodeproto.Ask[nodeproto.Grant](t.Context(), w.Conn, nodeproto.Offer, r, nil)
	closeAll(fds)
	if err != nil {
		t.Fatal(err)
	}
	return g.Handle
}

// accept introduces a link on one node.
func (w *fakeDaemon) accept(t *testing.T, id nodeproto.ProcessID, order uint64) (*hostileLink, error) {
	t.Helper()
	mine, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mine.Retire)
	ring, err := shmlayout.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Retire)
	socket, near, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	pages := []int{descriptor(t, mine.Region), descriptor(t, ring.Region), near}
	defer closeAll(pages)
	r := nodeproto.AcceptRequest{Link: order, Order: order, Importer: id, SameNode: true}
	_, fds, err := nodeproto.Ask[nodeproto.Empty](t.Context(), w.Conn, nodeproto.Accept, r, pages)
	closeAll(fds)
	if err != nil {
		_ = unix.Close(socket)
		return nil, err
	}
	return newHostileLink(t, socket, ring, shmlayout.Exporter{}), nil
}

// introduce is accept between nodes; hand gives the process the connection.
func (w *fakeDaemon) introduce(t *testing.T, id nodeproto.ProcessID, order uint64) error {
	t.Helper()
	r := nodeproto.AcceptRequest{Link: order, Order: order, Importer: id, Key: make([]byte, wire.KeySize)}
	_, err := w.Call(t.Context(), nodeproto.Accept, r, nil, nil)
	return err
}

func (w *fakeDaemon) hand(t *testing.T, order uint64) *hostileLink {
	t.Helper()
	return w.handOf(t, order, 0)
}

func (w *fakeDaemon) handOf(t *testing.T, order, capabilities uint64) *hostileLink {
	t.Helper()
	near, far := socketPair(t)
	h := wire.Hello{MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Capabilities: capabilities, Link: order, Attempt: 1}
	r := nodeproto.HandoverRequest{Link: order, Incarnation: 5, Hello: h.Encode(), Challenge: make([]byte, wire.ChallengeSize), Epoch: 1}
	_, err := w.Call(t.Context(), nodeproto.Handover, r, []int{far}, nil)
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

func socketPair(t *testing.T) (near *hostileLink, far int) {
	t.Helper()
	a, b, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	return newHostileLink(t, a, shmlayout.Importer{}, shmlayout.Exporter{}), b
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
		w := newFakeDaemon(t)
		id := nodeproto.ProcessID{Node: "a", PID: 2, Incarnation: 6}
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
		next.ring.Accept()
		w.leaves(t, next)
	})
	t.Run("between nodes", func(t *testing.T) {
		w := newFakeDaemon(t)
		id := nodeproto.ProcessID{Node: "b", PID: 2, Incarnation: 6}
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

// What was granted before an importer's second link can be used on that one as on the first, which
// it has cut: it may have been granted for the second.
func TestGrantsMoveToTheNextLink(t *testing.T) {
	for name, node := range map[string]string{"one node": "a", "between nodes": "b"} {
		t.Run(name, func(t *testing.T) {
			w := newFakeDaemon(t)
			id := nodeproto.ProcessID{Node: node, PID: 2, Incarnation: 6}
			handles := []uint32{w.offer(t, id)}
			link := func(order uint64) *hostileLink {
				if node != "a" {
					if err := w.introduce(t, id, order); err != nil {
						t.Fatal(err)
					}
					return w.hand(t, order)
				}
				r, err := w.accept(t, id, order)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			first := link(1)
			handles = append(handles, w.offer(t, id)) // which the first link has, too
			next := link(2)
			first.over(t)
			var heard []byte
			says := func(want wire.Type) (h wire.Header) { // or a refusal
				t.Helper()
				for h.Type != want && h.Type != wire.Nak && h.Type != wire.Revoke {
					for len(heard) < wire.HeaderSize {
						b, err := next.hear(t)
						if err != nil {
							t.Fatal(err)
						}
						heard = append(heard, b...)
					}
					if err := parsed(&h, heard); err != nil {
						t.Fatal(err)
					}
					for heard = heard[wire.HeaderSize:]; len(heard) < int(h.Chunk); {
						b, err := next.hear(t)
						if err != nil {
							t.Fatal(err)
						}
						heard = append(heard, b...)
					}
					heard = heard[h.Chunk:]
				}
				return h
			}
			for i, h := range handles {
				seq := 2*uint64(i) + 1
				add := wire.Header{Type: wire.Atomic, Handle: h, Seq: seq + 1, Size: 4}
				add.SetOperands(wire.FetchAdd, 1, 0)
				if err := next.say(t, append(frame(wire.Header{Type: wire.Get, Handle: h, Seq: seq, Size: 8}, nil), frame(add, nil)...)); err != nil {
					t.Fatal(err)
				}
				if is := says(wire.Reply); is.Type != wire.Reply {
					t.Errorf("grant %d: a get is answered with a frame of type %d and the word %d", i, is.Type, is.Word)
				}
				if is := says(wire.Result); is.Type != wire.Result {
					t.Errorf("grant %d: an atomic is answered with a frame of type %d and the word %d", i, is.Type, is.Word)
				}
			}
		})
	}
}

// An importer that has lost the answer to its dial asks for another link: that one takes the place
// of the one that is down, and the process is told that it is not.
func TestNextLinkOfALinkThatIsDown(t *testing.T) {
	w := newFakeDaemon(t)
	id := nodeproto.ProcessID{Node: "b", PID: 2, Incarnation: 6}
	w.offer(t, id)
	link := func(order uint64) *hostileLink {
		if err := w.introduce(t, id, order); err != nil {
			t.Fatal(err)
		}
		return w.handOf(t, order, wire.Resumes)
	}
	for order := uint64(1); order <= 5; order += 2 {
		first := link(order)
		_ = unix.Close(first.fd)
		first.fd = -1
		w.told(t, vmmc.LinkDown)
		next := link(order + 1)
		next.answers(t)
		w.told(t, vmmc.LinkResumed)
	}
	if len(w.events) > 0 {
		t.Errorf("%d more events", len(w.events))
	}
}

// An importer whose link was cut for another one that cannot begin is gone, whether its link had a
// connection or not: no event says that it goes on, and nothing is left of it.
func TestNextLinkCannotBegin(t *testing.T) {
	for name, down := range map[string]bool{"of one that is up": false, "of one that is down": true} {
		t.Run(name, func(t *testing.T) {
			w := newFakeDaemon(t)
			id := nodeproto.ProcessID{Node: "b", PID: 2, Incarnation: 6}
			w.offer(t, id)
			if err := w.introduce(t, id, 1); err != nil {
				t.Fatal(err)
			}
			used := w.handOf(t, 1, wire.Resumes)
			if down {
				_ = unix.Close(used.fd)
				used.fd = -1
				w.told(t, vmmc.LinkDown)
			}
			r, pipe, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			fd, err := unix.Dup(int(pipe.Fd()))
			_ = pipe.Close()
			if err != nil {
				t.Fatal(err)
			}
			if err := vmmc.JoinLate(w.p, id, 2, fd); err == nil {
				t.Error("a link has begun on a pipe")
			}
			if !down {
				used.over(t)
			}
			if e := w.told(t, vmmc.PeerGone); !errors.Is(e.Err, vmmc.ErrPeerGone) {
				t.Errorf("the importer is gone: %v", e.Err)
			}
			if n := vmmc.Grants(w.p); len(w.events) > 0 || n > 0 {
				t.Errorf("%d more events, %d grants are left", len(w.events), n)
			}
		})
	}
}

// A link that ends before its importer has it, as when the daemon dies that was to pass it on, does
// not say that the importer is gone; and the next one goes on as if it had not been.
func TestLinkThatNeverCame(t *testing.T) {
	said := make(chan string, 16)
	w := newFakeDaemon(t, vmmc.WithLogger(slog.New(slog.NewTextHandler(hears(said), nil))))
	id := nodeproto.ProcessID{Node: "a", PID: 2, Incarnation: 6}
	w.offer(t, id)
	lost, err := w.accept(t, id, 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(lost.fd)
	lost.fd = -1
	for ended := false; !ended; { // and what would be told of it is queued
		select {
		case s := <-said:
			ended = strings.Contains(s, "link from an importer ended")
		case <-time.After(bound):
			t.Fatal("the link goes on")
		}
	}
	w.offer(t, id)
	next, err := w.accept(t, id, 2)
	if err != nil {
		t.Fatal(err)
	}
	next.answers(t)
	next.ring.Accept()
	w.leaves(t, next)
}

// hears passes on what is written.
type hears chan string

func (h hears) Write(b []byte) (int, error) {
	h <- string(b)
	return len(b), nil
}

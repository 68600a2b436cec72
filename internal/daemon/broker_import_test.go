//go:build linux

package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// introduction is an import that brings descriptors, of a process that keeps none of the rules.
func introduction(
	t testing.TB, r *raw, node string, pid, id uint32, fds []int,
) (nodeproto.Grant, int, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	g, got, err := nodeproto.Ask[nodeproto.Grant](ctx, r.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Node: node, PID: pid, ID: id, Link: true}, fds)
	closeAll(fds)
	closeAll(got)
	return g, len(got), err
}

// pages are what an importer brings.
func pages(t testing.TB) []int {
	t.Helper()
	p, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Retire)
	ring, err := shmlayout.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ring.Retire)
	a, err := p.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ring.Descriptor()
	if err != nil {
		closeAll([]int{a})
		t.Fatal(err)
	}
	return []int{a, b}
}

// Nor does it wait for a program that was started and has not joined, which may never do so.
func TestImportThatBringsPagesFromWhoHasNotJoined(t *testing.T) {
	c := newSpawnCluster(t)
	pid := spawn(t, open(t, c.a), nodeOf(t, open(t, c.a), "a"), []string{"/bin/sleep", "1000"})
	fds, w := pipe(t, 2)
	_, _, err := introduction(t, newRaw(t, c.a, 10, nil), "a", uint32(pid), 1, fds)
	check(t, "a program that has not joined", err, code.InProgress)
	testutil.PipeClosed(t, w)
}

// An import that brings pages waits for nothing, as the node would hold their descriptors
// meanwhile; what it brings too little or too much of makes no link, and is closed.
func TestImportsThatBringPages(t *testing.T) {
	c := newCluster(t)
	tr := newTraffic(t, c.a, c.a)
	q := open(t, c.a)
	if _, err := q.Export(1, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	pid := uint32(q.PID())
	for _, n := range []int{0, 1, 2, 3, nodeproto.MaxDescriptors} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRaw(t, c.a, uint64(10+n), nil)
			fds, w := pipe(t, n)
			_, _, err := introduction(t, r, "a", pid, 2, fds)
			check(t, "a buffer that is not exported", err, code.InProgress, "buffer 2")
			testutil.PipeClosed(t, w)
			fds, w = pipe(t, n)
			_, _, err = introduction(t, r, "a", 999_999, 1, fds)
			check(t, "a process that is not there", err, code.NoSuchProcess)
			testutil.PipeClosed(t, w)
			fds, w = pipe(t, n)
			if g, got, err := introduction(t, r, "a", pid, 1, fds); err != nil || g.Size != 64 ||
				g.Link != nil || got != 0 {
				t.Errorf("%+v with %d descriptors, %v; want a grant without a link", g, got, err)
			}
			testutil.PipeClosed(t, w)
			if g, got, err := introduction(t, r, "a", pid, 1, pages(t)); err != nil || g.Link == nil ||
				g.Link.Link == 0 || got != nodeproto.LinkDescriptors {
				t.Errorf("%+v with %d descriptors, %v; want a grant with a link", g, got, err)
			}
			tr.goesOn(t)
		})
	}
	t.Run("pages, and more", func(t *testing.T) {
		r := newRaw(t, c.a, 9, nil)
		fds, w := pipe(t, 1)
		if g, got, err := introduction(t, r, "a", pid, 1, append(pages(t), fds...)); err != nil ||
			g.Link != nil || got != 0 {
			t.Errorf("%+v with %d descriptors, %v; want a grant without a link", g, got, err)
		}
		testutil.PipeClosed(t, w)
	})
	t.Run("to another node", func(t *testing.T) {
		r := newRaw(t, c.b, 10, nil)
		for _, n := range []int{2, nodeproto.MaxDescriptors} {
			fds, w := pipe(t, n)
			if g, got, err := introduction(t, r, "a", pid, 1, fds); err != nil || g.Size != 64 ||
				g.Link != nil || got != 0 {
				t.Errorf("%+v with %d descriptors, %v; want a grant without a link", g, got, err)
			}
			testutil.PipeClosed(t, w)
		}
		tr.goesOn(t)
	})
	if _, err := open(t, c.a).Import(t.Context(), q.Node(), q.PID(), 1); err != nil {
		t.Errorf("the exporter does not go on: %v", err)
	}
}

// What an exporter says of a link reaches the importer only where it was asked for one, and under
// the number that the node gave it.
func TestLinksThatNobodyAskedFor(t *testing.T) {
	c := newCluster(t)
	var with atomic.Pointer[[]int]
	bad := newRaw(t, c.a, 5, func(_ context.Context, _ nodeproto.Method, body []byte, fds []int) (any,
		[]int, error,
	) {
		closeAll(fds)
		o, err := nodeproto.Decode[nodeproto.OfferRequest](body)
		if (o.Order != 0) != (len(fds) != 0) {
			return nil, nil, code.New(code.BadArg, "%d descriptors with order %d", len(fds), o.Order)
		}
		l := &nodeproto.Connected{Link: 77, Address: "there", Key: []byte("key"), Epoch: 5, Imports: true}
		return nodeproto.Grant{Handle: 1, Size: 64, Rights: 3, Link: l}, *with.Load(), err
	})
	if _, err := bad.Call(t.Context(), nodeproto.Export,
		nodeproto.ExportRequest{ID: 1, Size: 64, Rights: 3}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*daemon.Node{c.a, c.b} {
		r := newRaw(t, n, 6, nil)
		fds, end := pipe(t, 3)
		with.Store(&fds)
		g, got, err := nodeproto.Ask[nodeproto.Grant](t.Context(), r.Conn, nodeproto.Import,
			nodeproto.ImportRequest{Node: "a", PID: bad.id.PID, ID: 1}, nil)
		closeAll(got)
		if err != nil || g.Link != nil {
			t.Errorf("a link without being asked for: %+v, %v", g.Link, err)
		}
		testutil.PipeClosed(t, end)
	}
	r := newRaw(t, c.a, 6, nil)
	with.Store(new([]int))
	g, _, err := introduction(t, r, "a", bad.id.PID, 1, pages(t))
	if err != nil || g.Link == nil {
		t.Fatalf("%+v, %v", g, err)
	}
	if l := g.Link; l.Link == 77 || l.Link == 0 || l.Address != "" || l.Key != nil || l.Epoch != 0 ||
		!l.SameNode || !l.Imports {
		t.Errorf("an exporter's word goes further than it must: %+v", *l)
	}
}

// An importer that gives up while its exporter is being asked leaves neither a link nor what came
// of it.
func TestImportGivenUpWithItsLink(t *testing.T) {
	n := alone(t)
	asked, hold := make(chan struct{}), make(chan struct{})
	withdrawn := make(chan nodeproto.ReleaseRequest, 1)
	fds, w := pipe(t, 3)
	e := newRaw(t, n, 5, func(_ context.Context, m nodeproto.Method, body []byte, fds2 []int) (any,
		[]int, error,
	) {
		closeAll(fds2)
		switch m {
		case nodeproto.Offer:
			close(asked)
			<-hold
			return nodeproto.Grant{Handle: 9, Size: 64, Rights: 3, Link: &nodeproto.Connected{}}, fds, nil
		case nodeproto.Withdraw:
			r, err := nodeproto.Decode[nodeproto.ReleaseRequest](body)
			withdrawn <- r
			return nodeproto.Empty{}, nil, err
		}
		return nil, nil, fmt.Errorf("request %d was not expected", m)
	})
	if _, err := e.Call(t.Context(), nodeproto.Export,
		nodeproto.ExportRequest{ID: 1, Size: 64, Rights: 3}, nil, nil); err != nil {
		t.Fatal(err)
	}
	r := newRaw(t, n, 6, nil)
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-asked; stop() }()
	mine := pages(t)
	_, got, err := nodeproto.Ask[nodeproto.Grant](ctx, r.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Node: "one", PID: e.id.PID, ID: 1, Link: true}, mine)
	closeAll(append(mine, got...))
	check(t, "an import that is given up", err, context.Canceled)
	// Its cancellation is read before this, so the node knows of it when the exporter answers.
	if _, err := r.Call(t.Context(), nodeproto.Export,
		nodeproto.ExportRequest{ID: 1, Size: 64, Rights: 3}, nil, nil); err != nil {
		t.Fatal(err)
	}
	close(hold)
	select {
	case g := <-withdrawn:
		if g.Handle != 9 || g.Importer != r.id {
			t.Errorf("%+v is withdrawn", g)
		}
	case <-time.After(bound):
		t.Error("the grant is not withdrawn")
	}
	testutil.PipeClosed(t, w)
}

// An import that was given up is asked of its exporter before what its importer asks for next, or
// not at all: its link would cut the next one.
func TestImportGivenUpComesNotLate(t *testing.T) {
	const rounds = 400
	n := alone(t)
	var mu sync.Mutex
	orders := make([]uint64, rounds+1) // of each buffer's last offer
	e := newRaw(t, n, 5, func(_ context.Context, m nodeproto.Method, body []byte, fds []int) (any,
		[]int, error,
	) {
		closeAll(fds)
		if m != nodeproto.Offer {
			return nodeproto.Empty{}, nil, nil
		}
		o, err := nodeproto.Decode[nodeproto.OfferRequest](body)
		mu.Lock()
		orders[o.ID] = o.Order
		mu.Unlock()
		return nodeproto.Grant{Handle: 1, Size: 64, Rights: 3}, nil, err
	})
	for id := range uint32(rounds + 1) {
		if _, err := e.Call(t.Context(), nodeproto.Export,
			nodeproto.ExportRequest{ID: id, Size: 64, Rights: 3}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	r := newRaw(t, n, 6, nil)
	given, stop := context.WithCancel(t.Context())
	stop()
	var next [rounds]uint64
	for id := range uint32(rounds) {
		_, _, _ = nodeproto.Ask[nodeproto.Grant](given, r.Conn, nodeproto.Import,
			nodeproto.ImportRequest{Node: "one", PID: e.id.PID, ID: id, Link: true}, nil)
		if _, _, err := introduction(t, r, "one", e.id.PID, rounds, nil); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		next[id] = orders[rounds]
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	for id, o := range next {
		if orders[id] > o {
			t.Errorf("an import that was given up makes link %d, after link %d, which was asked for later",
				orders[id], o)
		}
	}
}

// An import that waits keeps no descriptors, as it needs none: those of many would leave the node
// without.
func TestImportsThatWaitKeepNoDescriptors(t *testing.T) {
	c := newCluster(t)
	q := open(t, c.a)
	for name, n := range map[string]*daemon.Node{"here": c.a, "of another node": c.b} {
		t.Run(name, func(t *testing.T) {
			s, err := nodeproto.Dial(t.Context(), n.Socket())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ask := func(id byte, m nodeproto.Method, in any, fds ...int) {
				t.Helper()
				body, err := json.Marshal(in)
				if err != nil {
					t.Fatal(err)
				}
				b := append([]byte{'V', 'M', 'L', '1', 1, byte(len(fds)), byte(m), 0, id, 0, 0, 0, 0, 0, 0, 0},
					body...)
				if _, _, err := s.WriteMsgUnix(b, unix.Rights(fds), nil); err != nil {
					t.Fatal(err)
				}
			}
			hear := func(id byte) {
				t.Helper()
				b := make([]byte, nodeproto.MaxPacket)
				_ = s.SetReadDeadline(time.Now().Add(bound))
				if n, err := s.Read(b); err != nil || n < 16 || b[4] != 2 || b[8] != id {
					t.Fatalf("%q, %v, want the answer to %d", b[:n], err, id)
				}
			}
			ask(1, nodeproto.Register, nodeproto.Hello{Version: nodeproto.Version, Incarnation: 7})
			hear(1)
			fds, w := pipe(t, nodeproto.MaxDescriptors)
			// With Link only where it is of no use.
			ask(2, nodeproto.Import, nodeproto.ImportRequest{
				Node: "a", PID: uint32(q.PID()), ID: 1, Link: n == c.b,
			}, fds...)
			closeAll(fds)
			testutil.PipeClosed(t, w)
			e, err := q.Export(1, make([]byte, 64))
			if err != nil {
				t.Fatal(err)
			}
			hear(2)
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

package model_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// bound is how long the test waits for what must happen.
const bound = 20 * time.Second

// silent is a node of the hosts file that has no daemon.
const silent = "c"

// places are the nodes of the processes: two on one node, one on the other.
var places = []string{"a", "a", "b"}

// world is what all sequences share: two nodes, and processes that a sequence
// takes over from the one before it.
type world struct {
	t         *testing.T
	sockets   map[string]string
	nowhere   string          // a folder with no socket
	slots     []*vmmc.Process // nil: closed
	stranger  *vmmc.Process   // on node a, of another session
	broken    bool            // a sequence stopped half way: its processes are of no use
	events    events
	sequences int
	steps     int
	slowest   time.Duration // of all steps
	slow      []string      // what it was
	failed    bool          // the last sequence did
	first     []string      // what the first failing sequence did
}

func newWorld(t *testing.T, encrypt bool) *world {
	w := &world{t: t, nowhere: t.TempDir(), sockets: map[string]string{}, slots: make([]*vmmc.Process, len(places))}
	w.events.init()
	ids, err := cert.Ephemeral("test", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	var hs []hosts.Host
	names := []string{"a", "b", silent}
	as, err := cluster.FreeAddresses(len(names))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		hs = append(hs, hosts.Host{Name: name, Control: as[i], Data: as[i]})
	}
	for _, h := range hs[:2] {
		s := filepath.Join(t.TempDir(), h.Name)
		n, err := daemon.Start(daemon.Config{Name: h.Name, Socket: s, Hosts: hs, Identity: ids[h.Name], Encrypt: encrypt})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		w.sockets[h.Name] = s
	}
	if w.stranger, err = w.open("a", vmmc.WithSession(strangers)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.stranger.Close()
		w.closeAll()
	})
	return w
}

func (w *world) open(node string, opts ...vmmc.Option) (*vmmc.Process, error) {
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	return vmmc.Open(ctx, append([]vmmc.Option{vmmc.WithSocket(w.sockets[node])}, opts...)...)
}

func (w *world) closeAll() {
	for i, p := range w.slots {
		if p != nil {
			p.Close()
			w.slots[i] = nil
		}
	}
}

// run is one sequence.
func (w *world) run(rt *rapid.T) {
	if w.broken {
		w.closeAll()
	}
	s := w.begin(rt)
	// A call that never returns: say in which sequence.
	stuck := time.AfterFunc(5*bound, func() {
		did := s.snapshot()
		panic("a sequence is stuck; it did, last:\n" + strings.Join(did[max(0, len(did)-100):], "\n"))
	})
	defer stuck.Stop()
	w.broken, w.failed = true, false
	defer func() {
		if w.failed && w.first == nil {
			w.first = s.snapshot()
		}
	}()
	rt.Repeat(map[string]func(*rapid.T){"step": func(*rapid.T) { s.step() }})
	s.finish()
	w.broken = false
}

// begin gives a sequence its processes.
func (w *world) begin(rt *rapid.T) *sequence {
	w.sequences++
	s := &sequence{T: rt, w: w, slots: make([]*process, len(places))}
	for i := range places {
		if w.slots[i] == nil {
			p, err := w.open(places[i], vmmc.WithImportLimit(limits[i]), w.withEvents(i))
			if err != nil {
				w.t.Fatal(fmt.Errorf("open a process on node %s: %w", places[i], err))
			}
			w.slots[i] = p
		}
		s.enter(i)
	}
	return s
}

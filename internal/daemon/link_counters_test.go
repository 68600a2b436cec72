//go:build linux

package daemon_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// registers is a process with counters.
func registers(
	t *testing.T, n *daemon.Node, c interface{ Descriptor() (int, error) },
) *nodeproto.Conn {
	t.Helper()
	fd, err := c.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]int{fd})
	conn := join(t, n, nil)
	if _, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), conn, nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 1}, []int{fd}); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A process that registers again, with this daemon or another, is not counted twice.
func TestCountedOnce(t *testing.T) {
	n := startNode(t, daemon.Config{Name: "n1", Socket: anonymous()})
	c, err := shmlayout.NewCounters()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Retire()
	s := c.Take(true)
	s.Describe(false, false, shmlayout.LinkPeer{Node: "n2", PID: 1, Incarnation: 1})
	s.AddLocked(shmlayout.Messages, 5)
	counted := func(processes int, want uint64) {
		t.Helper()
		var f daemon.Figures
		for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if f = n.Figures(); f.Processes == processes && f.Totals.Imports[shmlayout.Messages] == want {
				return
			}
		}
		t.Fatalf("%d messages of %d processes, want %d of %d", f.Totals.Imports[shmlayout.Messages],
			f.Processes, want, processes)
	}
	conn := registers(t, n, c)
	counted(1, 0)
	s.Add(shmlayout.Messages, 3)
	counted(1, 3)
	conn.Close()
	counted(0, 3)
	conn = registers(t, n, c)
	counted(1, 3)
	s.Add(shmlayout.Messages, 2)
	s.Free() // to those that have ended
	counted(1, 5)
	conn.Close()
	counted(0, 5)
}

// The state that a process tells of a link's connection is listed and counted, and a number
// that is none is listed as unknown.
func TestConnStatesAreListed(t *testing.T) {
	c, ann := administered(t, "")
	counters, err := shmlayout.NewCounters()
	if err != nil {
		t.Fatal(err)
	}
	defer counters.Retire()
	s := counters.Take(true)
	s.Describe(false, false, shmlayout.LinkPeer{Node: "b", PID: 1, Incarnation: 1})
	registers(t, c.a, counters)
	for state, name := range map[shmlayout.ConnState]string{
		shmlayout.ConnUnknown: "unknown", shmlayout.ConnEstablished: "established",
		shmlayout.ConnRetransmitting: "retransmitting",
		shmlayout.ConnDraining:       "draining", shmlayout.ConnLost: "lost",
		shmlayout.ConnReconnecting: "reconnecting",
		shmlayout.ConnEnded:        "ended", shmlayout.ConnReleased: "released", 255: "unknown",
	} {
		s.SetState(state)
		if l, err := linksOf(t, c.a, ann, "a", &nodev1.LinksRequest{}); err != nil || len(l) != 1 ||
			l[0].GetState() != name {
			t.Errorf("state %d is listed as %v (%v), want %s", state, l, err, name)
		}
		for of, n := range c.a.Figures().LinkStates {
			if want := of.Imports && of.State == name; (n == 1) != want {
				t.Errorf("state %d: %d links are counted as %+v", state, n, of)
			}
		}
	}
}

// Whatever a process writes where it counts, links of others are listed as they are, in
// a number of pages that is bounded.
func TestLiarsSpoilTheirOwnRows(t *testing.T) {
	c, ann := administered(t, "")
	model, err := shmlayout.NewCounters()
	if err != nil {
		t.Fatal(err)
	}
	defer model.Retire()
	fd, err := model.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]int{fd})
	info, err := unix.Inspect(fd)
	if err != nil {
		t.Fatal(err)
	}
	liar, err := shm.NewSparse("liar", int(info.Size), true)
	if err != nil {
		t.Fatal(err)
	}
	defer liar.Retire()
	mem := liar.Bytes()
	if _, err := syscall.Pread(fd, mem[:16], 0); err != nil { // which kind of memory it is
		t.Fatal(err)
	}
	registers(t, c.a, liar)
	newTraffic(t, c.a, c.a).goesOn(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 12 {
		honest := 0
		r := &nodev1.LinksRequest{}
		for pages := 0; ; pages++ {
			l, err := linksOf(t, c.a, ann, "a", r)
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if len(l) == 0 {
				break
			}
			if pages > 2*shmlayout.MaxLinks/64 {
				t.Fatalf("round %d: there is no end of pages", round)
			}
			for _, one := range l {
				if one.GetPid() != 1 { // the liar came first
					honest++
				}
			}
			last := l[len(l)-1]
			r.AfterPid, r.AfterPlace = last.GetPid(), last.GetPlace()
			for range 1000 { // also between the pages
				mem[4096+rnd.IntN(len(mem)-4096)] = byte(rnd.Uint32())
			}
		}
		if honest != 2 {
			t.Fatalf("round %d: %d ends of one link between honest processes", round, honest)
		}
		_ = c.a.Figures()
		for i := 16; i < len(mem); i++ {
			mem[i] = byte(rnd.Uint32())
		}
	}
}

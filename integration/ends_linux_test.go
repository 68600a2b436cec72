package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("listens", listens) }

// heard is what a process was told: an event, or the error of a call.
type heard struct {
	What  string // the event's kind; "imported", "failed" or "works" of a call
	Codes []vmmc.Code
	Text  string
}

func (h heard) String() string { return fmt.Sprintf("%s %v: %s", h.What, h.Codes, h.Text) }

// listens joins its node and prints its pid, and then all that it is told. With a node and a pid it
// imports buffer 1 from there, and gets a word of it again and again until that fails; else it
// exports buffer 1. SIGUSR1 has it exit with its process open, SIGUSR2 close that first. SIGTERM is
// not handled.
func listens() int {
	tell := func(what string, err error) {
		h := heard{What: what, Text: fmt.Sprint(err)}
		for _, c := range []vmmc.Code{vmmc.ErrPeerGone, vmmc.ErrBadIbufState, vmmc.ErrUnreachable, vmmc.ErrTimeout, vmmc.ErrProtocol, vmmc.ErrNoDaemon} {
			if errors.Is(err, c) {
				h.Codes = append(h.Codes, c)
			}
		}
		b, _ := json.Marshal(h)
		fmt.Println(string(b))
	}
	args := testutil.Args()
	limit, err := time.ParseDuration(args[0])
	if err != nil {
		return say(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	p, err := vmmc.Open(ctx, vmmc.WithSilence(endsSilence), vmmc.WithResume(limit),
		vmmc.WithEvents(func(e vmmc.Event) { tell(e.Kind.String(), e.Err) }))
	if err != nil {
		return say(err)
	}
	fmt.Println(p.PID())
	if len(args) == 1 {
		m, err := p.Alloc(4096)
		if err != nil {
			return say(err)
		}
		if _, err := p.Export(1, m.Bytes()); err != nil {
			return say(err)
		}
	} else {
		node, pid, err := target(p, args[1], args[2])
		if err != nil {
			return say(err)
		}
		im, err := p.Import(ctx, node, pid, 1)
		if err != nil {
			return say(err)
		}
		get := func() error { return im.Get(ctx, make([]byte, 4), 0) }
		if err := get(); err != nil {
			return say(err)
		}
		tell("imported", nil)
		go func() {
			every := time.NewTicker(10 * time.Millisecond)
			for range every.C {
				if err := get(); err != nil {
					tell("failed", err)
					return
				}
			}
		}()
	}
	if <-signals == syscall.SIGUSR1 {
		return 0 // with the process open
	}
	if err := p.Close(); err != nil {
		return say(err)
	}
	return 0
}

// endsSilence is after which time nothing heard is silence.
const endsSilence = 2 * time.Second

// listener is a process that listens.
type listener struct {
	pid  vmmc.PID
	cmd  *exec.Cmd
	told chan heard
}

// listening starts a process in a namespace.
func listening(t *testing.T, ns *testutil.NS, socket string, args ...string) *listener {
	t.Helper()
	pid, cmd, r := launch(t, ns.Enter(testutil.Command(t, "listens", args...)), socket)
	l := &listener{pid, cmd, make(chan heard, 1000)}
	go func(r *bufio.Reader) {
		defer close(l.told)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var h heard
			if err := json.Unmarshal(line, &h); err != nil {
				h = heard{What: "nonsense", Text: string(line)}
			}
			l.told <- h
		}
	}(r)
	return l
}

// hears gives the next that a process is told, which is to be this.
func (l *listener) hears(t *testing.T, what string) heard {
	t.Helper()
	select {
	case h, ok := <-l.told:
		if !ok || h.What != what {
			t.Fatalf("%v, want %q", h, what)
		}
		return h
	case <-time.After(time.Minute):
		t.Fatalf("%q is not told", what)
	}
	return heard{}
}

// stage is two nodes, each in a namespace of its own, an exporter with its sender and the other way
// round: on the second node are the two that end, or are cut off, and on the first those that are
// told.
type stage struct {
	net                []*testutil.NS
	cl                 *cluster
	exporter, importer *listener // on the second node
	sender, holder     *listener // on the first
}

func newStage(t *testing.T, limit time.Duration) *stage {
	t.Helper()
	s := &stage{net: testutil.NewNet(t, 2)}
	s.cl = up(t, 2, []string{s.net[0].Addr, s.net[1].Addr}, func(i int, c *exec.Cmd) *exec.Cmd { return s.net[i].Enter(c) })
	start := func(node int, args ...string) *listener {
		l := listening(t, s.net[node], s.cl.socket(node), append([]string{limit.String()}, args...)...)
		if len(args) > 0 {
			l.hears(t, "imported")
		}
		return l
	}
	s.exporter = start(1)
	s.sender = start(0, "n1", number(s.exporter.pid))
	s.holder = start(0)
	s.importer = start(1, "n0", number(s.holder.pid))
	return s
}

// signal ends both processes of the second node.
func (s *stage) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	for _, l := range []*listener{s.exporter, s.importer} {
		if err := l.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
}

// firewall has the second node drop what comes in and goes out, or do so no more.
func (s *stage) firewall(t *testing.T, command string) {
	t.Helper()
	s.filter(t, command, "INPUT", "-j", "DROP")
	s.filter(t, command, "OUTPUT", "-j", "DROP")
}

// filter adds a rule to a chain of the second node, or takes it away again.
func (s *stage) filter(t *testing.T, command, chain string, rule ...string) {
	t.Helper()
	args := append([]string{"-w", command, chain, "-p", "tcp"}, rule...)
	if out, err := s.net[1].Command("iptables", args...).CombinedOutput(); err != nil {
		t.Fatalf("iptables %v: %v: %s", args, err, out)
	}
}

// filters reports whether the kernel has a packet filter that the tests may use.
func filters(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("iptables")
	testutil.Require(t, err == nil, "a firewall needs the iptables tool; install iptables")
	ns := testutil.NewNet(t, 1)[0]
	out, err := ns.Command("iptables", "-w", "-A", "INPUT", "-p", "tcp", "-j", "DROP").CombinedOutput()
	testutil.Require(t, err == nil, fmt.Sprintf("a firewall needs the kernel's packet filter: %v: %s", err, out))
}

// Each end of a peer is told as what it was, to a sender and to an exporter on another node, and no
// cause is named that is not true.
func TestEndsAreTold(t *testing.T) {
	const short, long = 3 * time.Second, time.Hour
	const (
		closed  = "side closed the connection|the connection was reset" // a reset if something was still to be read
		silence = "acknowledged nothing for 2s|nothing was heard for 2s|there is no way to the"
		gaveUp  = "not resumed within|has not resumed the link within"
	)
	// What is true of no end: these are texts that stand for several causes, of which they name
	// one.
	untrue := []string{"the peer process is gone", "unknown link", "context deadline exceeded"}
	notEnded := append([]string{"has ended: ", "process has ended: its node says so", "has left", "end of file", "EOF"}, untrue...)
	type told struct {
		down string // the cause of LinkDown, or alternatives; "": there is no such event
		gone string // the same of PeerGone, and of calls
		not  []string
	}
	for _, c := range []struct {
		name             string
		limit            time.Duration
		end              func(t *testing.T, s *stage)
		sender, exporter told
		back             func(t *testing.T, s *stage) // nil: the peer does not come back
		packets          bool
		revokes          bool // the sender hears besides, or first, that the export is closed
	}{
		{
			name: "the process is closed in order", limit: long, revokes: true,
			end:      func(t *testing.T, s *stage) { s.signal(t, syscall.SIGUSR2) },
			sender:   told{"", "the exporter has left: it has closed its process in order", append(untrue, "resumed", "connection")},
			exporter: told{"", "the importer has left: it has closed its process in order", append(untrue, "resumed", "connection")},
		},
		{
			name: "SIGTERM", limit: long,
			end:      func(t *testing.T, s *stage) { s.signal(t, syscall.SIGTERM) },
			sender:   told{closed, "on node \"n1\" has ended: its node says so", append(untrue, "resumed", "connection")},
			exporter: told{closed, "the importing process has ended: its node says so", append(untrue, "resumed", "connection")},
		},
		{
			name: "exit", limit: long,
			end:      func(t *testing.T, s *stage) { s.signal(t, syscall.SIGUSR1) },
			sender:   told{closed, "on node \"n1\" has ended: its node says so", append(untrue, "resumed", "connection")},
			exporter: told{closed, "the importing process has ended: its node says so", append(untrue, "resumed", "connection")},
		},
		{
			name: "kill", limit: long,
			end:      func(t *testing.T, s *stage) { s.signal(t, syscall.SIGKILL) },
			sender:   told{closed, "on node \"n1\" has ended: its node says so", append(untrue, "resumed", "connection")},
			exporter: told{closed, "the importing process has ended: its node says so", append(untrue, "resumed", "connection")},
		},
		{
			name: "the firewall drops for a while", limit: long, packets: true,
			end:      func(t *testing.T, s *stage) { s.firewall(t, "-A") },
			back:     func(t *testing.T, s *stage) { s.firewall(t, "-D") },
			sender:   told{silence, "", notEnded},
			exporter: told{silence, "", notEnded},
		},
		{
			name: "the firewall drops for good", limit: short, packets: true,
			end:      func(t *testing.T, s *stage) { s.firewall(t, "-A") },
			sender:   told{silence, gaveUp + " 3s", notEnded},
			exporter: told{silence, gaveUp, notEnded},
		},
		{
			name: "the firewall resets for good", limit: short, packets: true,
			end: func(t *testing.T, s *stage) {
				s.filter(t, "-A", "INPUT", "-j", "REJECT", "--reject-with", "tcp-reset")
			},
			sender:   told{"the connection was reset, by the exporter's machine or by the network between", gaveUp + " 3s", notEnded},
			exporter: told{"the connection was reset, by the importer's machine or by the network between|" + silence, gaveUp, notEnded},
		},
		{
			name: "the interface is down for a while", limit: long,
			end:      func(t *testing.T, s *stage) { wire(t, s.net[1], "down") },
			back:     func(t *testing.T, s *stage) { wire(t, s.net[1], "up") },
			sender:   told{silence, "", notEnded},
			exporter: told{silence, "", notEnded},
		},
		{
			name: "the interface is down for good", limit: short,
			end:      func(t *testing.T, s *stage) { wire(t, s.net[1], "down") },
			sender:   told{silence, gaveUp + " 3s", notEnded},
			exporter: told{silence, gaveUp, notEnded},
		},
		{
			name: "the peer's daemon has ended before a kill", limit: short,
			end: func(t *testing.T, s *stage) {
				s.cl.end(t, 1)
				works(t, s.sender) // links are not the daemon's
				s.signal(t, syscall.SIGKILL)
			},
			sender:   told{closed, "connection refused; import again when the exporter's node answers", notEnded},
			exporter: told{closed, "whether its process has ended is not known", notEnded},
		},
		{
			name: "the own daemon has ended before a kill", limit: short,
			end: func(t *testing.T, s *stage) {
				s.cl.end(t, 0)
				for _, l := range []*listener{s.sender, s.holder} {
					if h := l.hears(t, "node gone"); !strings.Contains(h.Text, "the node's daemon has ended") {
						t.Error(h)
					}
				}
				works(t, s.sender)
				s.signal(t, syscall.SIGKILL)
			},
			sender:   told{closed, "whether the process has ended is not known", []string{"the peer process is gone", "unknown link"}},
			exporter: told{closed, "whether its process has ended is not known", []string{"the peer process is gone", "unknown link"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.packets {
				filters(t)
			}
			s := newStage(t, c.limit)
			c.end(t, s)
			for name, side := range map[string]struct {
				*listener
				told
				calls bool
			}{"sender": {s.sender, c.sender, true}, "exporter": {s.holder, c.exporter, false}} {
				check := func(h heard, any string, codes ...vmmc.Code) {
					t.Logf("the %s: %v", name, h)
					right := false
					for _, says := range strings.Split(any, "|") {
						right = right || strings.Contains(h.Text, says)
					}
					if !right {
						t.Errorf("the %s hears %v, which does not say %q", name, h, any)
					}
					for _, not := range side.not {
						if h.What != vmmc.LinkDown.String() && strings.Contains(h.Text, not) {
							t.Errorf("the %s hears %v, which says %q", name, h, not)
						}
					}
					for _, c := range codes {
						if !has(h, c) {
							t.Errorf("the %s hears %v, which is not %v", name, h, c)
						}
					}
					if has(h, vmmc.ErrTimeout) || has(h, vmmc.ErrProtocol) {
						t.Errorf("the %s hears %v, of which neither a call's context nor the peer is the cause", name, h)
					}
				}
				if side.down != "" {
					check(side.hears(t, "link down"), side.down, vmmc.ErrPeerGone)
				}
				if c.back != nil {
					continue
				}
				// A call fails and the event is told at the same time.
				left := map[string]bool{"peer gone": true, "failed": side.calls, "import revoked": c.revokes && side.calls}
				for left["peer gone"] || left["failed"] || left["import revoked"] {
					h, ok := <-side.listener.told
					if !left[h.What] || !ok {
						t.Fatalf("the %s hears %v", name, h)
					}
					left[h.What] = false
					if c.revokes && h.What != "peer gone" {
						check(h, side.gone+"|the export was closed by its owner", vmmc.ErrBadIbufState)
						continue
					}
					check(h, side.gone, vmmc.ErrPeerGone, vmmc.ErrBadIbufState)
					if h.What == "failed" && !strings.Contains(h.Text, fmt.Sprintf("process %d on node \"n1\" (stream link 0x", s.exporter.pid)) {
						t.Errorf("%v does not say of which link", h)
					}
					if peer := "on node \"n1\""; !strings.Contains(h.Text, peer) {
						t.Errorf("%v does not say of which process", h)
					}
				}
			}
			if c.back != nil {
				c.back(t, s)
				for _, l := range []*listener{s.sender, s.holder} {
					l.hears(t, "link resumed")
				}
				works(t, s.sender)
			}
		})
	}
}

func has(h heard, c vmmc.Code) bool {
	for _, o := range h.Codes {
		if o == c {
			return true
		}
	}
	return false
}

// works fails the test if a listener has been told anything.
func works(t *testing.T, l *listener) {
	t.Helper()
	select {
	case h := <-l.told:
		t.Fatalf("it hears %v", h)
	default:
	}
}

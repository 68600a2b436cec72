package chaos

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// A fault is something that is done to the world, and undone after a time.
type fault struct {
	at   time.Duration
	kind deed
	who  int // a process or a node
	last time.Duration
}

type deed int

const (
	cut     deed = iota // the node's link is down
	drop                // its packets vanish
	reset               // its connections are reset
	freeze              // a process is stopped
	stall               // a daemon is stopped
	murder              // a process is killed, and begins anew
	crash               // so are a daemon and all its processes
	restart             // a daemon alone, as a power cut would end it
	replace             // so, as an upgrade would
	kinds
)

func (k deed) String() string {
	return [...]string{"cuts", "cuts without a word", "resets", "stopped processes", "stopped daemons", "killed processes", "crashed nodes", "killed daemons", "replaced daemons"}[k]
}

// crashes is how long a run must be to have crashed nodes. What is left of the links with them is
// known only after the limit.
const crashes = 15 * time.Second

// schedule is the faults that a seed stands for. Each bag has all kinds, and the first begins with
// those without which nothing was tried, so that a short run has them, too.
func schedule(seed uint64, total time.Duration) (all []fault) {
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(least, most int) time.Duration { return time.Duration(least+r.IntN(most-least)) * time.Millisecond }
	for at := 500 * time.Millisecond; at < total; {
		bag := []deed{cut, cut, cut, drop, reset, reset, reset, reset, freeze, freeze, freeze, freeze, stall, murder, murder, murder, restart, replace}
		if total >= crashes {
			bag = append(bag, crash)
		}
		r.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
		if len(all) == 0 {
			bag = append([]deed{reset, restart, cut}, bag...)
		}
		for _, k := range bag {
			f := fault{at: at, kind: k, who: r.IntN(processes)}
			switch k {
			case cut:
				f.last = between(50, 2000)
			case reset:
				f.last = between(10, 60)
			case drop, freeze, stall: // for less and for more than the silence
				f.last = between(50, 4000)
			}
			all = append(all, f)
			at += between(100, 800)
		}
	}
	return slices.DeleteFunc(all, func(f fault) bool { return f.at >= total })
}

// chaos is a run of a schedule.
type chaos struct {
	*world
	undo   []undo
	cut    map[int]bool // nodes
	frozen map[int]bool // processes
	stall  map[int]bool // daemons
	counts [kinds]int
}

type undo struct {
	at time.Time
	f  func()
}

// play does all faults at their times, and has undone them when it returns.
func (c *chaos) play(t *testing.T, all []fault) {
	begun := time.Now()
	for len(all) > 0 || len(c.undo) > 0 {
		slices.SortStableFunc(c.undo, func(a, b undo) int { return a.at.Compare(b.at) })
		if len(c.undo) > 0 && (len(all) == 0 || c.undo[0].at.Before(begun.Add(all[0].at))) {
			u := c.undo[0]
			c.undo = c.undo[1:]
			time.Sleep(time.Until(u.at))
			u.f()
			continue
		}
		time.Sleep(time.Until(begun.Add(all[0].at)))
		c.do(t, all[0])
		all = all[1:]
	}
}

func (c *chaos) later(d time.Duration, f func()) {
	c.undo = append(c.undo, undo{time.Now().Add(d), f})
}

// do does a fault, if it can be done just now.
func (c *chaos) do(t *testing.T, f fault) {
	t.Helper()
	node := f.who % nodes
	switch f.kind {
	case cut, drop, reset:
		// One at a time, or the times that links are without a connection would add up.
		if len(c.cut) > 0 {
			return
		}
		c.cut[node] = true
		c.network(t, node, f.kind, true)
		c.later(f.last, func() {
			c.network(t, node, f.kind, false)
			delete(c.cut, node)
		})
	case freeze:
		if c.frozen[f.who] {
			return
		}
		c.stopped(t, c.frozen, f.who, c.procs[f.who], f.last)
	case stall:
		if c.stall[node] {
			return
		}
		c.stopped(t, c.stall, node, c.daemons[node], f.last)
	case murder:
		c.kill(t, f.who)
		delete(c.frozen, f.who)
		c.begin(t, f.who)
	case crash:
		c.endDaemon(t, node, syscall.SIGKILL)
		for p := node; p < processes; p += nodes {
			c.kill(t, p)
			delete(c.frozen, p)
		}
		delete(c.stall, node)
		c.daemon(t, node)
		for p := node; p < processes; p += nodes {
			c.begin(t, p)
		}
	case restart, replace:
		c.endDaemon(t, node, map[deed]syscall.Signal{restart: syscall.SIGKILL, replace: syscall.SIGTERM}[f.kind])
		delete(c.stall, node)
		c.daemon(t, node)
	}
	c.counts[f.kind]++
	c.sift(t)
}

// stopped stops a process for a time; it may be killed meanwhile.
func (c *chaos) stopped(t *testing.T, set map[int]bool, who int, p *exec.Cmd, d time.Duration) {
	t.Helper()
	check(t, p.Process.Signal(syscall.SIGSTOP))
	set[who] = true
	c.later(d, func() {
		if p.ProcessState == nil {
			check(t, p.Process.Signal(syscall.SIGCONT))
			delete(set, who)
		}
	})
}

// network cuts a node off or has its connections reset, or ends that.
func (c *chaos) network(t *testing.T, node int, k deed, on bool) {
	t.Helper()
	run := func(name string, args ...string) {
		if out, err := c.net[node].Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
	}
	if k == cut {
		run("ip", "link", "set", "eth0", map[bool]string{true: "down", false: "up"}[on])
		return
	}
	for chain, way := range map[string]string{"INPUT": "-i", "OUTPUT": "-o"} {
		rule := []string{"-w", map[bool]string{true: "-A", false: "-D"}[on], chain, way, "eth0"}
		if k == drop {
			rule = append(rule, "-j", "DROP")
		} else {
			rule = append(rule, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
		}
		run("iptables", rule...)
	}
}

func (c *chaos) summary() (s string) {
	for k, n := range c.counts {
		if n > 0 {
			s += fmt.Sprintf("%d %v, ", n, deed(k))
		}
	}
	return s
}

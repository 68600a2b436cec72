package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// calm kills all daemons once more, when nothing else is done to anybody, and starts them again:
// each process comes back, and no link of two that live so much as loses its connection. Of a
// process that was killed while its node was cut off, the others may hear at any time.
func (w *world) calm(t *testing.T) {
	t.Helper()
	w.await(t, hang, func() string { return w.served(t) })
	before := w.conversing(txBegun)
	w.await(t, hang, func() string { return w.heard(before) })
	w.await(t, hang, w.linked)
	begun := time.Now()
	for i := range nodes {
		w.endDaemon(t, i, syscall.SIGKILL)
	}
	for i := range nodes {
		w.daemon(t, i)
	}
	again := time.Now()
	w.await(t, hang, func() string { return w.served(t) })
	t.Logf("of daemons that were killed together, all processes were back after %v", time.Since(again).Round(time.Millisecond))
	w.await(t, hang, w.tied)
	// A process that has heard nothing since the daemons died reports it within this time.
	time.Sleep(2 * silence)
	lives := w.byPID()
	for p := range processes {
		for _, n := range w.notes(p, w.lives[p]) {
			if of := lives[n.peer]; n.what == "link-down" && n.at.After(begun) && w.alive(of[0], of[1]) {
				t.Errorf("process %d, life %d: its link with %s was disturbed by the death of a daemon: %s", p, w.lives[p], n.peer, n.why)
			}
		}
	}
}

// served says which daemon does not have all processes of its node.
func (w *world) served(t *testing.T) string {
	for i := range nodes {
		f, err := w.figuresOf(t, i)
		if n := f["vmmc_processes"]; err != nil || n != processes/nodes {
			return fmt.Sprintf("%s has %.0f processes of %d, %v", nodeOf(i), n, processes/nodes, err)
		}
	}
	return ""
}

// conversing is what the senders that live have written down of their conversations with those that
// live.
func (w *world) conversing(word int) (of [processes][targets]uint64) {
	for from := range processes {
		for i := range targets {
			to := (from + i + 1) % processes
			l := w.ledger(pair{from, w.lives[from], to, w.lives[to]}.tx())
			of[from][i] = l.get(word)
			l.close()
		}
	}
	return of
}

// heard says in which conversation nothing has arrived yet that was begun later than before. TCP
// may be silent for as long again as a network was cut off: until something has come and was
// answered, each end may find that it has heard nothing for too long.
func (w *world) heard(before [processes][targets]uint64) string {
	now := w.conversing(txArrived)
	for from := range processes {
		for i := range targets {
			if now[from][i] <= before[from][i] {
				return fmt.Sprintf("of what process %d sends to process %d message %d has arrived, and %d had begun", from, (from+i+1)%processes, now[from][i], before[from][i])
			}
		}
	}
	return ""
}

// tied says which process that lives has lost its daemon and not come back to one.
func (w *world) tied() string {
	for p := range processes {
		gone, back := 0, 0
		for _, n := range w.notes(p, w.lives[p]) {
			switch n.what {
			case "node-gone":
				gone++
			case "node-back":
				back++
			}
		}
		if gone != back {
			return fmt.Sprintf("process %d has lost its daemon %d times, and has come back %d times", p, gone, back)
		}
	}
	return ""
}

// linked returns two live processes whose link has no connection, or of which one has not yet noted
// that it had none. The side that reconnects has noted the loss; the other side learns of it at the
// latest then.
func (w *world) linked() string {
	lives := w.byPID()
	var lost [processes][processes]int
	for p := range processes {
		down := map[string]int{}
		for _, n := range w.notes(p, w.lives[p]) {
			of := lives[n.peer]
			if !w.alive(of[0], of[1]) {
				continue
			}
			switch n.what {
			case "link-down":
				down[n.peer]++
				lost[p][of[0]]++
			case "link-resumed":
				down[n.peer]--
			}
		}
		for peer, n := range down {
			if n != 0 {
				return fmt.Sprintf("%d links of process %d with process %d are without a connection", n, p, lives[peer][0])
			}
		}
	}
	for from := range processes {
		for i := range targets {
			if to := (from + i + 1) % processes; lost[to][from] < lost[from][to] {
				return fmt.Sprintf("process %d has lost its connection with process %d %d times, which has noted that %d times", from, to, lost[from][to], lost[to][from])
			}
		}
	}
	return ""
}

package chaos

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// told is how long after its cause the end of a link may be told: exporters wait longer than
// the limit by 5 s and the silence, an attempt may be under way, and the machine may be busy.
const told = limit + 25*time.Second

// conversations are all that were begun.
func (w *world) conversations(t *testing.T) (all []pair) {
	t.Helper()
	files, err := filepath.Glob(w.path("tx.*"))
	check(t, err)
	for _, f := range files {
		var c pair
		_, err := fmt.Sscanf(filepath.Base(f), "tx.%d.%d.%d.%d", &c.from, &c.fromLife, &c.to, &c.toLife)
		check(t, err)
		all = append(all, c)
	}
	return all
}

// await polls until why is empty.
func (w *world) await(t *testing.T, most time.Duration, why func() string) {
	t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		s := why()
		if s == "" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("after %v: %s", most, s)
			return
		}
	}
}

// connected says which processes that live do not talk to each other.
func (w *world) connected() string {
	for from := range processes {
		for i := range targets {
			to := (from + i + 1) % processes
			c := pair{from, w.lives[from], to, w.lives[to]}
			if !w.exists(c.tx()) {
				return fmt.Sprintf("%s was not begun", c.tx())
			}
			l := w.ledger(c.tx())
			n, end, text := l.get(txArrived), l.get(txEnd), l.text()
			l.close()
			if n == 0 || end != going {
				return fmt.Sprintf("%s: %d messages have arrived, %s", c.tx(), n, text)
			}
		}
	}
	return ""
}

// settled says which conversation is not over, or not all of it received.
func (w *world) settled(t *testing.T) string {
	for _, c := range w.conversations(t) {
		tx, rx := w.ledger(c.tx()), w.ledger(c.rx())
		sender, receiver := w.alive(c.from, c.fromLife), w.alive(c.to, c.toLife)
		why := ""
		switch end := tx.get(txEnd); {
		case sender && end == going:
			why = "the sender's calls do not end"
		case sender && receiver && (rx.get(rxReceived) != tx.get(txBegun) || rx.get(rxNotified) != c.notes(uint32(tx.get(txBegun)))):
			why = fmt.Sprintf("%d messages were sent, %d received, %d notifications run", tx.get(txBegun), rx.get(rxReceived), rx.get(rxNotified))
		case !sender && receiver && rx.get(rxEnd) == going:
			why = "the receiver does not hear that the sender is dead"
		}
		if tx.text() != "" {
			why += "; " + tx.text()
		}
		tx.close()
		rx.close()
		if why != "" && !strings.HasPrefix(why, "; ") {
			return c.tx() + ": " + why
		}
	}
	return ""
}

// judge holds what was written down against what is promised.
func (w *world) judge(t *testing.T) (total map[string]uint64) {
	w.sift(t)
	for _, r := range w.left {
		_ = r.f.Close()
	}
	total = map[string]uint64{}
	shared := map[[2]int][2]uint64{}
	latest := time.Duration(0)
	for _, c := range w.conversations(t) {
		tx, rx := w.ledger(c.tx()), w.ledger(c.rx())
		for _, bad := range w.wrong(c, tx, rx) {
			t.Errorf("%s: %s (%s)", c.tx(), bad, tx.text())
		}
		total["conversations"]++
		total["messages"] += tx.get(txAccepted)
		total["gets"] += tx.get(txGets)
		total["additions"] += tx.get(txAdded) + tx.get(txSharedAdd)
		total["notifications"] += rx.get(rxNotified)
		to := [2]int{c.to, c.toLife}
		s := shared[to]
		shared[to] = [2]uint64{s[0] + tx.get(txSharedAdd), s[1] + tx.get(txShared)}
		if rx.get(rxSeen) == 1 {
			total["memories of dead processes"]++
			total["messages found there"] += rx.get(rxArrived) - rx.get(rxReceived)
		}
		if at, dead := w.killed[to]; dead && w.alive(c.from, c.fromLife) && tx.get(txEnd) == failed {
			late := time.Unix(0, int64(tx.get(txEndedAt))).Sub(at)
			latest = max(latest, late)
			if late > told {
				t.Errorf("%s: the sender was told after %v", c.tx(), late)
			}
		}
		tx.close()
		rx.close()
	}
	t.Logf("a process's death was told to its senders after %v at the latest", latest.Round(time.Millisecond))
	for p := range processes {
		l := w.ledger(lifeName(p, w.lives[p]))
		if l.get(lifeEnd) != finished {
			t.Errorf("process %d, life %d: %s", p, w.lives[p], l.text())
		}
		if n, s := l.get(lifeShared), shared[[2]int{p, w.lives[p]}]; n < s[0] || n > s[1] {
			t.Errorf("the counter of process %d is %d: %d additions were answered, %d begun", p, n, s[0], s[1])
		}
		l.close()
	}
	for i := range processes {
		for life := 1; life < w.lives[i]; life++ {
			l := w.ledger(lifeName(i, life))
			if s := l.text(); s != "" {
				t.Errorf("process %d, life %d: %s", i, life, s)
			}
			l.close()
		}
	}
	return total
}

// wrong says what of a conversation is not as promised.
func (w *world) wrong(c pair, tx, rx *ledger) (bad []string) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	begun, accepted, arrived := tx.get(txBegun), tx.get(txAccepted), tx.get(txArrived)
	adds, added := tx.get(txAdds), tx.get(txAdded)
	received, notified, counter := rx.get(rxReceived), rx.get(rxNotified), rx.get(rxCounter)
	sender, receiver := w.alive(c.from, c.fromLife), w.alive(c.to, c.toLife)

	must(tx.get(txEnd) != violated, "the sender says that a promise was broken")
	must(rx.get(rxEnd) != violated, "the receiver says: %s", rx.text())
	must(received <= begun, "%d messages were received of %d", received, begun)
	known, there := receiver, received
	if rx.get(rxSeen) == 1 {
		known, there = true, rx.get(rxArrived)
	}
	switch {
	case sender && receiver:
		must(tx.get(txEnd) == finished, "both live, and the link has failed")
		must(accepted == begun && received == begun, "both live, %d messages were begun, %d accepted and %d received", begun, accepted, received)
		must(notified == c.notes(uint32(begun)), "both live, and the handler was run %d times for %d", notified, c.notes(uint32(begun)))
		must(counter == added && adds == added, "the counter is %d after %d additions of %d", counter, added, adds)
	case sender && tx.get(txUnknown) == 0 && known:
		must(counter == adds, "the counter is %d, %d additions were made, and none of unknown outcome", counter, adds)
	}
	if sender && !receiver {
		must(tx.get(txEnd) == failed, "the receiver is dead, and the sender was not told")
	}
	if !known {
		return bad
	}
	must(notified <= c.notes(uint32(there)), "the handler was run %d times for %d messages", notified, there)
	must(there <= begun, "%d messages are there of %d", there, begun)
	must(there >= arrived, "message %d has arrived, as the sender was told, and only %d are there", arrived, there)
	if tx.get(txMapped) == 1 {
		must(there >= accepted || c.plan(uint32(accepted)).async, "a send to mapped memory has returned for message %d, and only %d are there", accepted, there)
	}
	if n := tx.get(txNever); n != 0 {
		must(there < n, "message %d was not sent, as the sender was told, and it is there", n)
	}
	must(added <= counter && counter <= adds, "the counter is %d, %d additions were answered and %d begun", counter, added, adds)
	if receiver && !sender {
		must(rx.get(rxEnd) == finished, "the sender is dead, and the receiver was not told")
		must(notified >= c.notes(uint32(arrived)), "the handler was run %d times, and for %d messages that had arrived it is %d", notified, arrived, c.notes(uint32(arrived)))
	}
	return bad
}

// events holds what processes were told against what was done to them.
func (w *world) events(t *testing.T, total map[string]uint64) {
	t.Helper()
	lives := w.byPID()
	refused := map[string]int{}
	for p := range processes {
		for life := 1; life <= w.lives[p]; life++ {
			w.eventsOf(t, p, life, lives, total, refused)
		}
	}
	for _, why := range slices.Sorted(func(yield func(string) bool) {
		for k := range refused {
			if !yield(k) {
				return
			}
		}
	}) {
		t.Logf("%d times, and then again: %s", refused[why], why)
	}
}

func (w *world) eventsOf(t *testing.T, p, life int, lives map[string][2]int, total map[string]uint64, refused map[string]int) {
	down := map[string]int{}
	for _, n := range w.notes(p, life) {
		switch n.what {
		case "link-down":
			down[n.peer]++
			total["connections lost"]++
		case "link-resumed":
			down[n.peer]--
			total["links resumed"]++
		case "node-back":
			total["processes come back"]++
		case "peer-gone":
			total["deaths told"]++
			of, ok := lives[n.peer]
			at, dead := w.killed[of]
			if !ok || !dead || n.at.Before(at) {
				t.Errorf("process %d, life %d, was told that process %d, life %d (%s), is gone, which lived: %s", p, life, of[0], of[1], n.peer, n.why)
			}
		case "import", "open:":
			words := strings.Fields(n.peer + " " + n.why)
			refused[n.what+" ... "+strings.Join(words[max(0, len(words)-8):], " ")]++
		}
	}
	for peer, n := range down {
		if of := lives[peer]; n != 0 && w.alive(p, life) && w.alive(of[0], of[1]) {
			t.Errorf("process %d, life %d: of the links with process %d, which lives, %d were lost and not resumed", p, life, of[0], n)
		}
	}
}

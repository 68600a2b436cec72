package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// note is a line that a process has left for the test: an event, of which peer and why, or a call
// that was refused.
type note struct {
	at              time.Time
	what, peer, why string
}

// notes are those of a life of a process.
func (w *world) notes(p, life int) (all []note) {
	b, _ := os.ReadFile(w.path("log." + lifeName(p, life)))
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		var n note
		when, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		n.what, rest, _ = strings.Cut(rest, " ")
		n.peer, n.why, _ = strings.Cut(rest, " ")
		ns, _ := strconv.ParseInt(when, 10, 64)
		n.at = time.Unix(0, ns)
		all = append(all, n)
	}
	return all
}

// byPID are the processes and their lives, by node and pid.
func (w *world) byPID() map[string][2]int {
	lives := map[string][2]int{}
	for p := range processes {
		for life := 1; life <= w.lives[p]; life++ {
			l := w.ledger(lifeName(p, life))
			if pid := l.get(lifePID); pid != 0 {
				lives[fmt.Sprintf("%s/%d", nodeOf(p), pid)] = [2]int{p, life}
			}
			l.close()
		}
	}
	return lives
}

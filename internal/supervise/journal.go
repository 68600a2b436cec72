package supervise

import (
	"bytes"
	"encoding/json"
	"os"
)

// journalFile is in the session's directory, one line of JSON for each thing
// that happened to a program; its last line counts. A supervisor that takes the
// place of a dead one learns from it which programs there were.
const journalFile = "journal"

type journal struct {
	f     *os.File // nil: to be written anew
	lines int
}

// load reads what is there. A torn last line is what a death in the middle of
// writing leaves.
func loadJournal() map[uint32]*Program {
	all := map[uint32]*Program{}
	b, err := os.ReadFile(journalFile)
	if err != nil {
		return all
	}
	for line := range bytes.Lines(b) {
		var p Program
		if json.Unmarshal(line, &p) == nil && p.PID != 0 {
			all[p.PID] = &p
		}
	}
	return all
}

// note writes down what has become of p, one of all. A journal that cannot be
// written harms no program; it is written anew, and whole, the next time.
func (j *journal) note(p *Program, all func(func(*Program))) {
	line := *p
	line.Token = "" // means nothing to another supervisor
	b, err := json.Marshal(line)
	if err != nil {
		return
	}
	if j.f != nil && j.lines < 4*maxEnded {
		if _, err := j.f.Write(append(b, '\n')); err == nil {
			j.lines++
			return
		}
	}
	j.rewrite(all)
}

func (j *journal) rewrite(all func(func(*Program))) {
	if j.f != nil {
		_ = j.f.Close()
		j.f = nil
	}
	var b bytes.Buffer
	n := 0
	e := json.NewEncoder(&b)
	all(func(p *Program) {
		line := *p
		line.Token = ""
		if e.Encode(line) == nil {
			n++
		}
	})
	f, err := os.OpenFile(journalFile+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	if _, err = f.Write(b.Bytes()); err == nil {
		err = os.Rename(journalFile+".new", journalFile)
	}
	if err != nil {
		_ = f.Close()
		return
	}
	j.f, j.lines = f, n
}

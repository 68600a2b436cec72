package chaos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// remains is the memory of a process that was killed, kept by a descriptor: no sender may deny a
// message that had arrived there before.
type remains struct {
	pair
	f   *os.File
	off int64
}

// remains opens the buffers of a process that is about to be killed.
func (w *world) remains(t *testing.T, p int) (all []remains) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", w.procs[p].Process.Pid))
	check(t, err)
	for i := range targets {
		from := (p + processes - i - 1) % processes
		for life := 1; life <= w.lives[from]; life++ {
			c := pair{from, life, p, w.lives[p]}
			if !w.exists(c.rx()) {
				continue
			}
			l := w.ledger(c.rx())
			at := l.get(rxAddress)
			if l.get(rxReady) == 1 && l.get(rxEnd) == going {
				if r, ok := find(w.procs[p].Process.Pid, maps, at); ok {
					r.pair = c
					all = append(all, r)
				}
			}
			l.close()
		}
	}
	return all
}

// find opens the file that is mapped at an address.
func find(pid int, maps []byte, at uint64) (r remains, ok bool) {
	for line := range bytes.Lines(maps) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(string(line), "%x-%x %s %x", &from, &to, &mode, &r.off); err != nil || from > at || at >= to {
			continue
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, from, to))
		r.f, r.off = f, r.off+int64(at-from)
		return r, err == nil
	}
	return r, false
}

// sift checks the memory of dead processes that have no sender any more: a sender on the same
// node may store there until it hears of the death.
func (w *world) sift(t *testing.T) {
	t.Helper()
	w.left = slices.DeleteFunc(w.left, func(r remains) bool {
		if w.alive(r.from, r.fromLife) {
			if !w.exists(r.tx()) {
				return time.Since(w.killed[[2]int{r.to, r.toLife}]) > hang && r.f.Close() == nil
			}
			tx := w.ledger(r.tx())
			defer tx.close()
			if tx.get(txEnd) == going {
				return false
			}
		}
		r.look(t, w)
		return true
	})
}

// look writes down what is there.
func (r remains) look(t *testing.T, w *world) {
	t.Helper()
	defer func() { _ = r.f.Close() }()
	l := w.ledger(r.rx())
	defer l.close()
	if l.get(rxEnd) != going { // it was closed just before
		return
	}
	word := func(at int) uint32 {
		var b [4]byte
		if _, err := r.f.ReadAt(b[:], r.off+int64(at)); err != nil {
			t.Errorf("%s: read the memory of the dead process: %v", r.rx(), err)
		}
		return binary.LittleEndian.Uint32(b[:])
	}
	n := uint32(l.get(rxReceived))
	for {
		p := r.plan(n + 1)
		if word(p.end()-4) != n+1 {
			break
		}
		b := make([]byte, p.size)
		if _, err := r.f.ReadAt(b, r.off+int64(p.off)); err != nil || p.wrong(b) >= 0 {
			t.Errorf("%s: message %d is there and wrong at byte %d: %v", r.rx(), n+1, p.wrong(b), err)
		}
		n++
	}
	l.set(rxArrived, uint64(n))
	l.set(rxCounter, uint64(word(counterAt))|uint64(word(counterAt+4))<<32)
	l.set(rxSeen, 1)
}

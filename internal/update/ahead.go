package update

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Where a full pass is over much memory, most of its time is the kernel's walk through the page tables, which
// several threads can make at once.
const (
	stretch   = 32 << 20 // that one of them asks about; some 10 us
	fewest    = 4        // stretches that are worth it
	mostLooks = 4        // threads: more of them wait for memory
)

// ahead finds the pages that a full pass has to look at. It protects nothing, so a page that it passes over is one
// that any other look would pass over then, and what it finds is looked at as if it had not been found.
type ahead struct {
	stretch int
	next    atomic.Int64   // the first stretch that nobody has taken
	found   []found        // by stretch; each is its taker's until looks is over
	looks   sync.WaitGroup // goroutines of one pass, which ends after them
}

// found is what was stored to in a stretch: runs, and if there are as many as fit all from end on.
type found struct {
	runs [8]shm.PageRun
	n    int
	end  int
	err  error
}

// newAhead is nil where it would be of no use for n bytes.
func newAhead(n, stretch int) *ahead {
	if alone || n < fewest*stretch {
		return nil
	}
	return &ahead{stretch: stretch, found: make([]found, (n+stretch-1)/stretch)}
}

// wholeCold looks at all cold pages that were stored to, and gives up when cut says so.
func (b *Binding) wholeCold(cut func() bool) error {
	a := b.ahead
	if a == nil {
		return b.allCold(cut)
	}
	a.next.Store(0) // nobody takes any between two passes
	for range min(runtime.GOMAXPROCS(0), mostLooks) - 1 {
		a.looks.Go(func() {
			for a.take(b) {
			}
		})
	}
	ended := cut()
	for !ended && a.take(b) {
		ended = cut()
	}
	if ended {
		a.next.Store(int64(len(a.found)))
	}
	a.looks.Wait()
	if ended {
		return errCut
	}
	b.sweep()
	for i := range a.found {
		f := &a.found[i]
		if f.err != nil {
			return f.err
		}
		for _, r := range f.runs[:f.n] {
			if err := b.eachCold(b.lo+int(r.Start), b.lo+int(r.End), cut); err != nil {
				return err
			}
		}
		if f.n == len(f.runs) {
			if err := b.eachCold(b.lo+f.end, min(b.lo+(i+1)*a.stretch, b.hi), cut); err != nil {
				return err
			}
		}
	}
	return nil
}

// take asks what was stored to in the next stretch; false when none is left.
func (a *ahead) take(b *Binding) bool {
	i := int(a.next.Add(1)) - 1
	if i >= len(a.found) {
		return false
	}
	f := &a.found[i]
	b.scans.Add(1)
	f.n, f.end, f.err = b.watch.Written(i*a.stretch, min((i+1)*a.stretch, b.hi-b.lo), false, f.runs[:])
	return true
}

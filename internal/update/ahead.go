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
	fewest    = 8        // stretches that are worth waking another thread
	mostLooks = 4        // threads: more of them wait for memory
)

// ahead finds the pages that a full pass has to look at. It asks without protecting, after the flags were loaded:
// what it leaves out is what a look would find unchanged then, and what it finds is only where to look.
type ahead struct {
	stretch int
	found   []found        // by stretch; each is its taker's until all is over
	next    atomic.Int64   // the first stretch that nobody has taken
	open    sync.WaitGroup // stretches, not goroutines: one that gets no processor is not waited for
	look    func()         // takes stretches until none is left
}

// found is what was stored to in a stretch: runs, and whatever there is from end on.
type found struct {
	runs [8]shm.PageRun
	n    int
	end  int
	err  error
}

func (b *Binding) newAhead(stretch int) *ahead {
	n := b.hi - b.lo
	a := &ahead{stretch: stretch, found: make([]found, (n+stretch-1)/stretch)}
	a.next.Store(int64(len(a.found)))
	a.look = func() {
		for a.take(b) {
		}
	}
	return a
}

// ask asks about all stretches, or gives up when cut says so.
func (a *ahead) ask(b *Binding, cut func() bool) error {
	if cut() {
		return errCut
	}
	a.open.Add(len(a.found))
	// Who comes late from the pass before finds nothing up to here, and helps from here on.
	a.next.Store(0)
	for range min(runtime.GOMAXPROCS(0), mostLooks) - 1 {
		go a.look()
	}
	ended := false
	for !ended && a.take(b) {
		ended = cut()
	}
	// Nobody takes any more, and after the binding's end nobody touches its watch.
	taken := min(int(a.next.Swap(int64(len(a.found)))), len(a.found))
	a.open.Add(taken - len(a.found))
	a.open.Wait()
	if ended {
		return errCut
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
	a.open.Done()
	return true
}

// foundCold looks at what was found.
func (b *Binding) foundCold(cut func() bool) error {
	for i := range b.ahead.found {
		f := &b.ahead.found[i]
		if f.err != nil {
			return f.err
		}
		runs := f.runs[:f.n]
		if f.n > 0 && !b.protecting {
			end, err := b.noted(runs, f.n < len(f.runs), cut)
			if err == nil && end < b.lo+int(runs[f.n-1].End) {
				err = errCut
			}
			if err != nil {
				return err
			}
			runs = nil
		}
		for _, r := range runs { // to protect them first
			if err := b.eachCold(b.lo+int(r.Start), b.lo+int(r.End), cut); err != nil {
				return err
			}
		}
		if err := b.eachCold(b.lo+f.end, min(b.lo+(i+1)*b.ahead.stretch, b.hi), cut); err != nil {
			return err
		}
	}
	return nil
}

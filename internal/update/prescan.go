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
	stretch      = 32 << 20 // that one of them asks about; some 10 us
	minStretches = 8        // stretches that are worth waking another thread
	maxThreads   = 4        // threads: more of them wait for memory
)

// prescan finds the pages that a full pass has to look at. It asks without protecting, after the flags were loaded:
// what it leaves out is what a look would find unchanged then, and what it finds is only where to look.
type prescan struct {
	stretch       int
	results       []stretchResult // by stretch; each is its taker's until all is over
	next          atomic.Int64    // the first stretch that nobody has taken
	openStretches sync.WaitGroup  // stretches, not goroutines: one that gets no processor is not waited for
	worker        func()          // takes stretches until none is left
}

// stretchResult is what was stored to in a stretch: runs, and whatever there is from end on.
type stretchResult struct {
	runs [8]shm.PageRun
	n    int
	end  int
	err  error
}

func (b *Binding) newPrescan(stretch int) *prescan {
	n := b.hi - b.lo
	a := &prescan{stretch: stretch, results: make([]stretchResult, (n+stretch-1)/stretch)}
	a.next.Store(int64(len(a.results)))
	a.worker = func() {
		for a.scanNext(b) {
		}
	}
	return a
}

// run asks about all stretches, or gives up when cut says so.
func (a *prescan) run(b *Binding, cut func() bool) error {
	if cut() {
		return errInterrupted
	}
	a.openStretches.Add(len(a.results))
	// Who comes late from the pass before finds nothing up to here, and helps from here on.
	a.next.Store(0)
	for range min(runtime.GOMAXPROCS(0), maxThreads) - 1 {
		go a.worker()
	}
	ended := false
	for !ended && a.scanNext(b) {
		ended = cut()
	}
	// Nobody takes any more, and after the binding's end nobody touches its watch.
	taken := min(int(a.next.Swap(int64(len(a.results)))), len(a.results))
	a.openStretches.Add(taken - len(a.results))
	a.openStretches.Wait()
	if ended {
		return errInterrupted
	}
	return nil
}

// scanNext asks what was stored to in the next stretch; false when none is left.
func (a *prescan) scanNext(b *Binding) bool {
	i := int(a.next.Add(1)) - 1
	if i >= len(a.results) {
		return false
	}
	f := &a.results[i]
	b.scans.Add(1)
	f.n, f.end, f.err = b.watch.Written(i*a.stretch, min((i+1)*a.stretch, b.hi-b.lo), false, f.runs[:])
	a.openStretches.Done()
	return true
}

// scanFound looks at what was found.
func (b *Binding) scanFound(cut func() bool) error {
	for i := range b.prescan.results {
		f := &b.prescan.results[i]
		if f.err != nil {
			return f.err
		}
		runs := f.runs[:f.n]
		if f.n > 0 && !b.protecting {
			end, err := b.handleWritten(runs, f.n < len(f.runs), cut)
			if err == nil && end < b.lo+int(runs[f.n-1].End) {
				err = errInterrupted
			}
			if err != nil {
				return err
			}
			runs = nil
		}
		for _, r := range runs { // to protect them first
			if err := b.scanCold(b.lo+int(r.Start), b.lo+int(r.End), cut); err != nil {
				return err
			}
		}
		if err := b.scanCold(b.lo+f.end, min(b.lo+(i+1)*b.prescan.stretch, b.hi), cut); err != nil {
			return err
		}
	}
	return nil
}

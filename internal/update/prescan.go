package update

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// A full pass over much memory spends most of its time in the kernel's walk through the page
// tables, which several threads can make at once.
const (
	stretch      = 32 << 20 // What one call asks about; some 10 us.
	minStretches = 8        // Stretches that are worth waking another thread.
	maxThreads   = 4        // More threads wait for memory.
)

// prescan finds the pages that a full pass has to look at. It asks without protecting, after the
// flags were loaded: what it leaves out a look would find unchanged then, and what it finds is only
// where to look.
type prescan struct {
	stretch int
	// By stretch. Each belongs to the thread that took it until all are complete.
	results []stretchResult
	next    atomic.Int64 // The first stretch that no thread has taken.
	// Counts stretches, not goroutines: one that gets no processor is not waited for.
	openStretches sync.WaitGroup
	worker        func() // Takes stretches until none is left.
}

// stretchResult is what was stored to in a stretch: runs, and possibly anything from end on.
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

// run asks about all stretches, or gives up when cut returns true.
func (a *prescan) run(b *Binding, cut func() bool) error {
	if cut() {
		return errInterrupted
	}
	a.openStretches.Add(len(a.results))
	// A worker that is late from the previous pass finds nothing up to here, and helps from here
	// on.
	a.next.Store(0)
	for range min(runtime.GOMAXPROCS(0), maxThreads) - 1 {
		go a.worker()
	}
	ended := false
	for !ended && a.scanNext(b) {
		ended = cut()
	}
	// No worker takes a stretch any more, so none uses the watch after the binding's end.
	taken := min(int(a.next.Swap(int64(len(a.results)))), len(a.results))
	a.openStretches.Add(taken - len(a.results))
	a.openStretches.Wait()
	if ended {
		return errInterrupted
	}
	return nil
}

// scanNext asks what was stored to in the next stretch. It returns false when none is left.
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

// scanFound looks at the pages that were found.
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

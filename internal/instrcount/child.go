package instrcount

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Rounds is how often each path is counted. On a loaded machine one or two of ten rounds differ.
const Rounds = 11

// Run is the child's side: it runs each path in turn on a thread of its own. in and out are
// joined to the parent, which began this process by [Measure]. No other goroutine runs meanwhile:
// there is one processor for all of them, and no collection.
func Run(in io.Reader, out io.Writer, paths []Path) error {
	runtime.LockOSThread() // so that the next goroutine gets another thread than the process's first
	defer runtime.UnlockOSThread()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	paths = append([]Path{{Name: "nothing", Run: func() error { return nil }}}, paths...)
	over := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := run(in, out, paths)
		over <- err
		if err != nil {
			select {} // else the parent would see the thread's end before it hears why
		}
	}()
	return <-over
}

func run(in io.Reader, out io.Writer, paths []Path) error {
	t := unix.OwnThread()
	b := begin{Thread: t.ID(), Rounds: Rounds}
	for _, p := range paths {
		b.Paths = append(b.Paths, p.Name)
		for range Rounds { // pools are filled, stacks have grown
			if err := p.round(func() {}); err != nil {
				return err
			}
		}
	}
	if err := json.NewEncoder(out).Encode(b); err != nil {
		return fmt.Errorf("telling the parent what will be counted: %w", err)
	}
	if _, err := in.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the parent to trace: %w", err)
	}
	for _, p := range paths {
		for range Rounds {
			if err := p.round(t.Mark); err != nil {
				return err
			}
		}
	}
	t.Mark() // the parent stops tracing here
	return nil
}

// round runs the path once, between two marks.
func (p *Path) round(mark func()) error {
	runtime.Gosched() // a fresh slice of time, and others have had their turn
	if p.Before != nil {
		if err := p.Before(); err != nil {
			return fmt.Errorf("%s: making ready: %w", p.Name, err)
		}
	}
	mark()
	err := p.Run()
	mark()
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

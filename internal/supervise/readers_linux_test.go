package supervise

import (
	"os"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Readers of a program's output, more than there are places at files, do not hold up the program or
// each other.
func TestReadersAndTheirProgram(t *testing.T) {
	const size, readers = 16 << 20, 3
	base := t.TempDir()
	t.Chdir(t.TempDir()) // the session's directory
	root, err := os.OpenRoot(base)
	must(t, err)
	defer root.Close()
	d := &drive{root: root, spec: Spec{Node: "n1", Output: "/"}, fileSlots: newFileSlots(0, func() int { return minSpareThreads })}
	e := &ends{}
	for i := range e.output {
		e.output[i], e.program[1+i], err = unix.OutputPipe()
		must(t, err)
	}
	o := d.openOutput(1, e)
	go o.copy()
	var all sync.WaitGroup
	all.Go(func() {
		defer e.closeProgram()
		for i := range size >> 16 {
			if n, err := e.program[1+i%2].Write(make([]byte, 1<<16)); err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
	})
	for range readers {
		all.Go(func() {
			for at := int64(0); at < size; {
				c, err := o.read(t.Context(), ReadRequest{Offset: at, Max: MaxChunk, Apart: true})
				if err != nil || c.Lost > 0 {
					t.Errorf("from byte %d on: %d bytes are lost, %v", at, c.Lost, err)
					return
				}
				at = c.Next
			}
		})
	}
	all.Wait()
	<-o.done
}

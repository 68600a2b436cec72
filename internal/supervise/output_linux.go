package supervise

import (
	"context"
	"fmt"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// bufferSize is how much of a program's output is in memory at a time. Who
// prints faster than the file takes it waits in its own write.
const bufferSize = 64 << 10

// retryOpen is how soon a file that could not be opened is tried again.
const retryOpen = 200 * time.Millisecond

// output takes what a program prints to its file. A file that cannot be written
// never holds the program up: what does not go in is counted, and the file says
// so when it can be written again.
type output struct {
	s    *supervisor
	name string
	pipe *os.File
	over chan struct{} // closed when all that had the pipe are gone
	to   *attended     // nil: the file has it all

	written atomic.Int64 // counts when something may be in the file that was not

	mu     sync.Mutex // held from reading to having written, which may take long
	f      *os.File
	tried  time.Time
	silent int64 // bytes that are missing, and the file does not say so yet

	figures sync.Mutex // after mu, for these alone
	start   int64      // where this program's output begins in the file
	total   int64
	missing int64
	why     string
}

// openOutput opens the file before the program starts, if that can be.
func (s *supervisor) openOutput(name string, e *ends) *output {
	o := &output{s: s, name: name, pipe: e.output, to: e.to, over: make(chan struct{})}
	o.reopen()
	return o
}

// discard takes the file of a program that was not started away again.
func (o *output) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.f == nil {
		return
	}
	if st, err := o.f.Stat(); err == nil && st.Size() == 0 {
		_ = o.s.root.Remove(path.Join(within(o.s.spec.Output), o.name))
	}
	_ = o.f.Close()
	o.f = nil
}

// copy runs until the program and all that have its output from it are gone.
func (o *output) copy() {
	defer close(o.over)
	defer o.close()
	rc, err := o.pipe.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, bufferSize)
	for over := false; !over; {
		o.to.room()
		err := rc.Read(func(fd uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			n, again := unix.ReadSome(fd, buf)
			if again {
				return false
			}
			over = n == 0
			o.write(buf[:n])
			o.written.Add(1)
			return true
		})
		if err != nil {
			o.rest(rc, buf)
			return
		}
	}
}

// rest takes what is there when nobody waits for more: the terminal is hung up.
func (o *output) rest(rc syscall.RawConn, buf []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = rc.Control(func(fd uintptr) {
		for range 16 { // it may go on printing
			n, again := unix.ReadSome(fd, buf)
			if again || n == 0 {
				return
			}
			o.write(buf[:n])
			o.written.Add(1)
		}
	})
}

// quiet says whether all that was printed so far has been written.
func (o *output) quiet() bool {
	select {
	case <-o.over:
		return true
	default:
	}
	if !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	return !unix.Readable(o.pipe)
}

// write is called with mu, as all below.
func (o *output) write(b []byte) {
	o.count(func() { o.total += int64(len(b)) })
	if len(b) == 0 {
		return
	}
	defer o.to.show(b) // and it is in the file when it is seen
	_ = o.s.places.logs.Take(context.Background())
	defer o.s.places.logs.Give()
	if (o.f == nil || removed(o.f)) && !o.reopen() {
		o.lose(len(b), nil)
		return
	}
	if !o.confess() {
		o.lose(len(b), nil)
		return
	}
	n, err := o.f.Write(b)
	if err != nil {
		o.lose(len(b)-n, err)
	}
}

func (o *output) reopen() bool {
	if time.Since(o.tried) < retryOpen {
		return false
	}
	if o.f != nil {
		_ = o.f.Close()
		o.f = nil
	}
	o.tried = time.Now()
	f, size, err := o.s.appendTo(o.name)
	if err != nil {
		o.count(func() { o.why = plain(err).Error() })
		return false
	}
	o.f = f
	o.count(func() { o.start = size })
	return true
}

func (o *output) lose(n int, err error) {
	o.silent += int64(n)
	o.count(func() {
		o.missing += int64(n)
		if err != nil {
			o.why = plain(err).Error()
		}
	})
}

// count changes what tell tells.
func (o *output) count(f func()) {
	o.figures.Lock()
	defer o.figures.Unlock()
	f()
}

// confess says in the file what is missing there.
func (o *output) confess() bool {
	if o.silent == 0 {
		return true
	}
	note := fmt.Sprintf("\nvmmc: %d bytes of output are missing here: %s\n", o.silent, o.reason())
	st, err := o.f.Stat()
	if err != nil {
		return false
	}
	if n, err := o.f.WriteString(note); err != nil {
		if n > 0 { // half a note is none
			_ = o.f.Truncate(st.Size())
		}
		return false
	}
	o.silent = 0
	return true
}

func (o *output) close() {
	_ = o.s.places.logs.Take(context.Background())
	defer o.s.places.logs.Give()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.f != nil {
		if o.silent > 0 {
			o.confess()
		}
		_ = o.f.Close()
		o.f = nil
	}
	_ = o.pipe.Close()
}

// tell puts into p what is known of its output.
func (o *output) tell(p *Program) {
	o.figures.Lock()
	defer o.figures.Unlock()
	p.Output, p.Missing, p.Why, p.Start = o.total, o.missing, o.why, o.start
	if o.missing == 0 {
		p.Why = ""
	}
}

func (o *output) reason() string {
	o.figures.Lock()
	defer o.figures.Unlock()
	return o.why
}

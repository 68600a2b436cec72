package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// bufferSize is how much of a program's output is in memory at a time. A program
// that prints faster than the file takes it waits in its own write.
const bufferSize = 64 << 10

// retryOpen is how soon a file that could not be opened is tried again.
const retryOpen = 200 * time.Millisecond

// output takes what a program prints to its file. A file that cannot be written
// never holds the program up: what does not go in is counted, and the file says
// so when it can be written again.
type output struct {
	drive *drive
	pid   uint32
	name  string
	// Of standard output and of standard error; with a terminal the second is nil.
	pipes      [2]*os.File
	done       chan struct{} // closed when all that had the pipes are gone
	attachment *attachment   // nil: the file has it all

	written atomic.Int64 // counts when something may be in the file that was not

	// mu is held from reading to having written, which may take long. It comes before a place at
	// the logs: readers with all the places that wait for mu would wait for the writer, and it for
	// a place.
	mu         sync.Mutex
	ended      [2]bool // streams that no process holds any more
	closed     bool    // f is closed for good
	f          *os.File
	size       int64 // of f, behind what was written last
	kept       int64 // bytes of this program's output in f
	tried      time.Time
	unreported int64  // bytes that are missing, and the file does not say so yet
	reason     string // why
	index      index

	statsMu sync.Mutex // after mu, for these alone
	start   int64      // where this program's output begins in the file
	total   int64
	missing int64
	why     string
}

// openOutput opens the file before the program starts, if that can be.
func (d *drive) openOutput(pid uint32, e *ends) *output {
	o := &output{drive: d, pid: pid, name: LogName(d.spec.Node, pid), pipes: e.output, attachment: e.attachment, done: make(chan struct{})}
	o.ended[1] = e.output[1] == nil
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
		_ = o.drive.root.Remove(path.Join(within(o.drive.spec.Output), o.name))
	}
	_ = o.f.Close()
	o.f = nil
	o.index.close()
	_ = os.Remove(indexFile(o.pid))
}

// copy runs until the program and all that have its output from it are gone.
func (o *output) copy() {
	defer close(o.done)
	defer o.close()
	buf := make([]byte, bufferSize)
	var both sync.WaitGroup
	for i, p := range o.pipes {
		if p != nil {
			both.Go(func() { o.copyStream(i, buf) })
		}
	}
	both.Wait()
}

// copyStream copies when there is something in one stream, both: what was printed to standard
// output first and to standard error then is in the file so, if both are there by then. buf is
// guarded by mu.
func (o *output) copyStream(i int, buf []byte) {
	rc, err := o.pipes[i].SyscallConn()
	if err != nil {
		return
	}
	for over := false; !over; {
		o.attachment.awaitSpace()
		err := rc.Read(func(fd uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			if i == 1 && !o.ended[0] {
				if first, err := o.pipes[0].SyscallConn(); err == nil {
					_ = first.Control(func(fd uintptr) { o.copyOnce(0, fd, buf) })
				}
			}
			got := o.ended[i] || o.copyOnce(i, fd, buf)
			over = o.ended[i]
			return got
		})
		if err != nil {
			o.drain(rc, buf)
			return
		}
	}
}

// copyOnce copies what is in a stream, once. It reports whether there was data, or the end. The
// caller holds mu.
func (o *output) copyOnce(i int, fd uintptr, buf []byte) bool {
	n, again := unix.ReadSome(fd, buf)
	if again {
		return false
	}
	o.ended[i] = n == 0
	o.write(i, buf[:n])
	o.written.Add(1)
	return true
}

// drain copies the remaining output after the terminal was hung up.
func (o *output) drain(rc syscall.RawConn, buf []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = rc.Control(func(fd uintptr) {
		for range 16 { // it may go on printing
			if !o.copyOnce(0, fd, buf) || o.ended[0] {
				return
			}
		}
	})
}

// idle reports whether all that was printed so far has been written.
func (o *output) idle() bool {
	select {
	case <-o.done:
		return true
	default:
	}
	if !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	for i, p := range o.pipes {
		if !o.ended[i] && unix.Readable(p) {
			return false
		}
	}
	return true
}

// The caller of write, and of all functions below, holds mu.
func (o *output) write(stream int, b []byte) {
	pos := o.total // which only this changes
	o.updateStats(func() { o.total += int64(len(b)) })
	if len(b) == 0 {
		return
	}
	now := time.Now()
	// and it is in the file when it is seen
	defer o.attachment.append(b, Piece{Error: stream == 1, Bytes: len(b), Time: now})
	_ = o.drive.fileSlots.logs.Acquire(context.Background())
	defer o.drive.fileSlots.logs.Release()
	if !o.current() && !o.reopen() {
		o.countMissing(len(b), nil)
		return
	}
	if err := o.writeGapNote(); err != nil {
		o.countMissing(len(b), err)
		return
	}
	n, err := o.f.Write(b)
	if n > 0 {
		if end, serr := o.f.Seek(0, io.SeekCurrent); serr == nil { // others may append too
			o.size = end
		} else {
			o.size += int64(n)
		}
		o.kept += int64(n)
		o.index.add(span{pos: pos, at: o.size - int64(n), time: now.UnixNano(), bytes: uint32(n), err: stream == 1})
	}
	if err != nil {
		o.countMissing(len(b)-n, err)
	}
}

// current reports whether the file that is open is still the program's. What was in one that
// another program has taken away, or emptied, is not kept any more.
func (o *output) current() bool {
	if o.f == nil {
		return false
	}
	st, err := o.f.Stat()
	if err != nil {
		return false
	}
	if st.Size() < o.size {
		o.discountFile("the file was truncated by another program")
		o.size = st.Size()
		o.index.begin(o.pid, o.f)
		return true
	}
	there, err := o.drive.root.Lstat(path.Join(within(o.drive.spec.Output), o.name))
	if err == nil && os.SameFile(there, st) {
		return true
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a server that does not answer has it still
		return true
	}
	o.discountFile("the file was removed or renamed by another program")
	o.tried = time.Time{}
	return false
}

// discountFile says that what was in the file is not the program's output any more.
func (o *output) discountFile(why string) {
	if o.kept > 0 {
		o.updateStats(func() { o.missing, o.why = o.missing+o.kept, why })
	}
	o.kept = 0
}

func (o *output) reopen() bool {
	if time.Since(o.tried) < retryOpen {
		return false
	}
	if o.f != nil {
		o.setFile(nil)
	}
	o.tried = time.Now()
	f, size, err := o.drive.appendTo(o.name)
	if err != nil {
		o.reason = plain(err).Error()
		return false
	}
	o.setFile(f)
	o.size = size
	o.index.begin(o.pid, f)
	o.updateStats(func() { o.start = size })
	return true
}

// setFile replaces the file.
func (o *output) setFile(f *os.File) {
	if o.f != nil {
		_ = o.f.Close()
	}
	o.f = f
}

// countMissing counts bytes that cannot be kept, because of err or of what reopen has found.
func (o *output) countMissing(n int, err error) {
	o.unreported += int64(n)
	if err != nil {
		o.reason = plain(err).Error()
	}
	o.updateStats(func() { o.missing, o.why = o.missing+int64(n), o.reason })
}

// updateStats changes what tell tells.
func (o *output) updateStats(f func()) {
	o.statsMu.Lock()
	defer o.statsMu.Unlock()
	f()
}

// writeGapNote says in the file what is missing there.
func (o *output) writeGapNote() error {
	if o.unreported == 0 {
		return nil
	}
	note := fmt.Sprintf("\nvmmc: %d bytes of output are missing here: %s\n", o.unreported, o.reason)
	st, err := o.f.Stat()
	if err != nil {
		return err
	}
	if n, err := o.f.WriteString(note); err != nil {
		if n > 0 { // half a note is none
			_ = o.f.Truncate(st.Size())
		}
		return err
	}
	o.unreported, o.size = 0, st.Size()+int64(len(note))
	return nil
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.drive.fileSlots.logs.Acquire(context.Background())
	defer o.drive.fileSlots.logs.Release()
	o.closed = true
	if !o.current() {
		o.setFile(nil)
	}
	if o.f != nil {
		_ = o.writeGapNote()
		o.setFile(nil)
	}
	o.index.close()
	for _, p := range o.pipes {
		if p != nil {
			_ = p.Close()
		}
	}
}

// read gives output by its position. With a tail it says only where that begins.
func (o *output) read(ctx context.Context, r ReadRequest) (Chunk, error) {
	o.mu.Lock()
	unlock := sync.OnceFunc(o.mu.Unlock)
	defer unlock()
	if err := o.drive.fileSlots.logs.Acquire(ctx); err != nil {
		return Chunk{}, err
	}
	defer o.drive.fileSlots.logs.Release()
	v := o.index.view(o.pid)
	defer v.close()
	f, why := o.f, error(nil)
	if o.closed {
		if f, why = o.drive.openIndexed(o.name, o.index.header); f != nil {
			defer f.Close()
		}
	} else if !o.current() {
		f = nil
	}
	total := o.total
	if r.Tail != nil { // which may read the whole file: the program goes on printing meanwhile
		v.last = slices.Clone(v.last)
		unlock()
	}
	return v.answer(ctx, f, why, r, total, o.missingReason())
}

// fillStats puts into p what is known of its output.
func (o *output) fillStats(p *Program) {
	o.statsMu.Lock()
	defer o.statsMu.Unlock()
	p.Output, p.Missing, p.Why, p.Start = o.total, o.missing, o.why, o.start
	if o.missing == 0 {
		p.Why = ""
	}
}

// missingReason is why output is missing, as tell says.
func (o *output) missingReason() string {
	o.statsMu.Lock()
	defer o.statsMu.Unlock()
	return o.why
}

// Package logfile keeps the log of a program in files of bounded size. A goroutine that
// logs never waits for the disk: lines go through a buffer in memory to one writer
// goroutine. Lines that do not fit the buffer are dropped and counted.
package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/trust"
	"github.com/vmmc-go/vmmc/internal/unix"
)

const (
	// Size is that of a file before the next one is begun.
	Size = 4 << 20
	// kept is how many older ones there are: server.log.1 is the youngest.
	kept = 4

	maxPending = 1 << 20 // bytes that wait for the disk
	maxLine    = 8 << 10

	// retry is when a disk that did not take a line is tried again.
	retry = 2 * time.Second
)

// File is a log and its older parts. What it holds is counted in positions, which
// go on from part to part.
type File struct {
	opening error // of the first attempt to open it
	path    string
	limit   int64
	begun   int64 // the first position of this program

	mu      sync.Mutex
	pending []byte
	writing bool
	missed  int // lines since the last that was kept
	why     error
	changed chan struct{} // closed when a write is over
	closed  bool

	wake chan struct{}
	done chan struct{}

	disk  sync.Mutex // held while files are read, written or renamed
	file  *os.File   // nil: it could not be opened yet
	parts []part     // the youngest first: path, path.1, ...
}

// part is a file: of the positions from start on it has size.
type part struct {
	start, size int64
}

// Open begins to log to path, of which each part has about limit bytes. It cannot
// fail: a directory that is not there now may be there later.
func Open(path string, limit int64) *File {
	f := &File{path: path, limit: limit, changed: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{})}
	start := int64(0)
	f.parts = make([]part, kept+1)
	for i := kept; i >= 1; i-- {
		f.parts[i].start = start
		if s, err := os.Stat(f.name(i)); err == nil {
			f.parts[i].size = s.Size()
		}
		start += f.parts[i].size
	}
	f.parts[0].start = start
	f.disk.Lock()
	f.opening = f.mend() // it is tried again, and a later line says what was wrong
	f.begun = f.parts[0].start + f.parts[0].size
	f.disk.Unlock()
	go f.run()
	return f
}

// Opening is why the file could not be written when it was opened; nil if it could.
func (f *File) Opening() error { return f.opening }

func (f *File) name(i int) string {
	if i == 0 {
		return f.path
	}
	return f.path + "." + strconv.Itoa(i)
}

// Write takes one line. It never fails and never waits for the disk.
func (f *File) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(line)
	cut := n > maxLine
	if cut {
		line = line[:maxLine]
	}
	if f.closed || len(f.pending)+len(line) > maxPending {
		f.missed++
		f.why = errors.New("the disk is slower than the log")
		return n, nil
	}
	f.pending = append(f.pending, line...)
	if cut {
		f.pending = append(f.pending, "...\n"...)
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return n, nil
}

// Close writes what is left, if the disk takes it.
func (f *File) Close() {
	f.mu.Lock()
	again := f.closed
	f.closed = true
	f.mu.Unlock()
	if !again {
		close(f.wake)
	}
	<-f.done
}

func (f *File) run() {
	defer close(f.done)
	again := time.NewTimer(retry)
	defer again.Stop()
	for on := true; on; {
		select {
		case _, on = <-f.wake:
		case <-again.C:
		}
		if !f.drain() {
			again.Reset(retry)
		}
	}
	f.disk.Lock()
	defer f.disk.Unlock()
	if f.file != nil {
		_ = f.file.Close()
	}
}

// drain writes what has come, and how much has not been kept before it.
func (f *File) drain() bool {
	f.mu.Lock()
	lines, missed, why := f.pending, f.missed, f.why
	f.pending, f.missed, f.why = nil, 0, nil
	f.writing = len(lines) > 0 || missed > 0
	f.mu.Unlock()
	if len(lines) == 0 && missed == 0 {
		return true
	}
	out := lines
	if missed > 0 {
		out = append(missing(missed, why), lines...)
	}
	err := f.write(out)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writing = false
	close(f.changed)
	f.changed = make(chan struct{})
	if err != nil {
		f.missed += missed + bytes.Count(lines, []byte{'\n'})
		f.why = err
	}
	return err == nil
}

func missing(n int, why error) []byte {
	var b bytes.Buffer
	slog.New(slog.NewTextHandler(&b, nil)).Warn("lines of this log were not kept", "lines", n, "why", why)
	return b.Bytes()
}

// write keeps all of b or nothing.
func (f *File) write(b []byte) error {
	f.disk.Lock()
	defer f.disk.Unlock()
	if err := f.mend(); err != nil {
		return err
	}
	if f.parts[0].size > 0 && f.parts[0].size+int64(len(b)) > f.limit {
		if err := f.rotate(); err != nil {
			return err
		}
	}
	if _, err := f.file.Write(b); err != nil {
		_ = f.file.Truncate(f.parts[0].size) // else half a line would be there
		return fmt.Errorf("write the log: %w", err)
	}
	f.parts[0].size += int64(len(b))
	return nil
}

// mend opens the file, and opens it again if it was removed or renamed. It makes the
// directory too.
func (f *File) mend() error {
	if f.file != nil {
		there, err := os.Stat(f.path)
		own, oerr := f.file.Stat()
		if err == nil && oerr == nil && os.SameFile(there, own) {
			return nil
		}
		_ = f.file.Close()
		f.file = nil
		f.parts[0] = part{start: f.parts[0].start + f.parts[0].size}
	}
	// No other user's directory or file: a link would have this program write elsewhere.
	if _, err := trust.Own().Make(filepath.Dir(f.path), 0o750); err != nil {
		return fmt.Errorf("use the directory of the log: %w", err)
	}
	file, err := unix.OpenOwn(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	s, err := file.Stat()
	if err == nil && s.Mode().Perm() != 0o640 {
		err = file.Chmod(0o640)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("open the log: %w", err)
	}
	f.file, f.parts[0].size = file, s.Size()
	return nil
}

// rotate begins the next part. The oldest goes.
func (f *File) rotate() error {
	for i := kept; i >= 1; i-- {
		if err := os.Rename(f.name(i-1), f.name(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("begin the next file of the log: %w", err)
		}
		f.parts[i] = f.parts[i-1]
	}
	_ = f.file.Close()
	f.file = nil
	f.parts[0] = part{start: f.parts[1].start + f.parts[1].size}
	return f.mend()
}

// settle waits a moment for what was logged before.
func (f *File) settle(until time.Time) {
	for {
		f.mu.Lock()
		changed, waiting := f.changed, f.writing || len(f.pending) > 0
		f.mu.Unlock()
		if !waiting {
			return
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-changed:
			t.Stop()
		case <-t.C:
			return
		}
	}
}

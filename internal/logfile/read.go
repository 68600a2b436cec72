package logfile

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"
)

// patience is how long a reader waits for lines that are on their way to the disk.
const patience = time.Second

// End is the position behind the last line.
func (f *File) End() int64 {
	f.settle(time.Now().Add(patience))
	f.disk.Lock()
	defer f.disk.Unlock()
	return f.parts[0].start + f.parts[0].size
}

// Begun is where this program has begun to write.
func (f *File) Begun() int64 { return f.begun }

// Last is the position of the first of the last lines, as many as there are.
func (f *File) Last(lines int) int64 {
	at := f.End()
	if lines <= 0 {
		return at
	}
	lines++ // the end of the line before the first
	buf := make([]byte, 64<<10)
	for at > 0 {
		n, from := f.before(at, buf)
		if n == 0 {
			if from >= at {
				break
			}
			at = from // a part that is gone
			continue
		}
		for b := buf[:n]; ; {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 {
				break
			}
			if lines--; lines == 0 {
				return from + int64(i) + 1
			}
			b = b[:i]
		}
		at = from
	}
	return at
}

// before reads what stands before a position, in one part, and says where that
// begins.
func (f *File) before(at int64, b []byte) (n int, from int64) {
	f.disk.Lock()
	defer f.disk.Unlock()
	for i, p := range f.parts {
		if p.start < at && p.size > 0 {
			from = max(p.start, at-int64(len(b)))
			return f.readPart(i, from-p.start, b[:at-from]), from
		}
	}
	return 0, 0
}

// Read gives what stands at a position, and the position behind it: what is not
// kept any more is left out. At the end it waits until there is more or ctx ends;
// then it gives nothing.
func (f *File) Read(ctx context.Context, at int64, b []byte) (n int, next int64) {
	f.settle(time.Now().Add(patience))
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if n, next = f.after(at, b); n > 0 {
			return n, next
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, next
		}
	}
}

func (f *File) after(at int64, b []byte) (n int, next int64) {
	f.disk.Lock()
	defer f.disk.Unlock()
	for i := len(f.parts) - 1; i >= 0; i-- {
		p := f.parts[i]
		if at >= p.start+p.size {
			continue
		}
		at = max(at, p.start)
		if n = f.readPart(i, at-p.start, b[:min(int64(len(b)), p.start+p.size-at)]); n > 0 {
			return n, at + int64(n)
		}
	}
	return 0, f.parts[0].start + f.parts[0].size
}

func (f *File) readPart(i int, offset int64, b []byte) int {
	if s, err := os.Lstat(f.name(i)); err != nil || !s.Mode().IsRegular() {
		return 0
	}
	file, err := os.Open(f.name(i))
	if err != nil {
		return 0
	}
	defer file.Close()
	n, err := file.ReadAt(b, offset)
	if err != nil && err != io.EOF { //nolint:errorlint // as ReadAt returns it
		return 0
	}
	return n
}

package main

import (
	"bytes"
	"io"
	"sync"
)

// maxLine is what is kept of a line that has not ended.
const maxLine = 64 << 10

// lines puts a process's name before each of its lines, so that those of
// several can be told apart.
type lines struct {
	mu   *sync.Mutex // one for all that share w
	w    io.Writer
	name string
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLine {
			return len(b), nil
		}
		if i < 0 {
			i = len(l.rest) - 1
		}
		if err := l.put(l.rest[:i+1]); err != nil {
			return 0, err
		}
		l.rest = l.rest[i+1:]
	}
}

// flush writes a last line that has no end.
func (l *lines) flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	defer func() { l.rest = nil }()
	return l.put(append(l.rest, '\n'))
}

func (l *lines) put(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(append([]byte("["+l.name+"] "), line...))
	return err
}

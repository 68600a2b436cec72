package main

import (
	"bytes"
	"sync"
	"time"
)

// maxLine is what is kept of a line that has not ended.
const maxLine = 64 << 10

// stampForm is how times stand before lines: of one width, so that columns stay.
const stampForm = "2006-01-02T15:04:05.000000000Z07:00"

// lines puts a process's name, or the time, before each of its lines, so that those of several can
// be told apart. Each stream has its own.
type lines struct {
	mu    *sync.Mutex // one for all that share to
	to    func(b []byte) error
	name  string // empty: none
	bare  bool   // nothing is put before lines, and no end behind a last one without
	stamp bool
	rest  []byte
	at    time.Time // when rest began
}

func (l *lines) write(at time.Time, b []byte) error {
	for len(b) > 0 {
		if len(l.rest) == 0 {
			l.at = at
		}
		n := bytes.IndexByte(b, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(b)
		}
		l.rest, b = append(l.rest, b[:n]...), b[n:]
		if whole || len(l.rest) >= maxLine {
			if err := l.put(l.rest); err != nil {
				return err
			}
			l.rest = nil
		}
	}
	return nil
}

// flush writes a last line that has no end.
func (l *lines) flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	defer func() { l.rest = nil }()
	if !l.bare {
		l.rest = append(l.rest, '\n')
	}
	return l.put(l.rest)
}

func (l *lines) put(line []byte) error {
	var b []byte
	if l.name != "" {
		b = append(b, "["+l.name+"] "...)
	}
	if l.stamp {
		stamp := "-" // the node does not know it
		if !l.at.IsZero() {
			stamp = l.at.UTC().Format(stampForm)
		}
		b = append(b, stamp+" "...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to(append(b, line...))
}

package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/ask"
)

// streams are this tool's standard output and standard error, to which output of processes goes.
type streams struct {
	mu sync.Mutex
	w  [2]io.Writer

	// Set where the tool goes on without a reader: it is told once of each stream that takes no
	// more.
	broken func(name string, err error)
	failed [2]error
}

func newStreams(out, err io.Writer) *streams { return &streams{w: [2]io.Writer{out, err}} }

var streamNames = [2]string{"standard output", "standard error"}

func (s *streams) write(i int, b []byte) error {
	if len(b) == 0 || s.failed[i] != nil {
		return nil
	}
	_, err := s.w[i].Write(b)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("write what the program prints to %s: %w", streamNames[i], err)
	if s.broken == nil {
		return err
	}
	s.failed[i] = err
	s.broken(streamNames[i], err)
	return nil
}

// plain gives output on as it is.
func (s *streams) plain() ask.Output {
	return func(toStderr bool, _ time.Time, b []byte) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.write(index(toStderr), b)
	}
}

func index(toStderr bool) int {
	if toStderr {
		return 1
	}
	return 0
}

// lined gives output on by lines, which begin with a name or a time; flush is called at the end.
func (s *streams) lined(name string, stamp bool) (to ask.Output, flush func() error) {
	return s.byLine(lines{name: name, stamp: stamp})
}

// whole gives output on as it is, by whole lines: those of several processes do not mix.
func (s *streams) whole() (to ask.Output, flush func() error) { return s.byLine(lines{bare: true}) }

func (s *streams) byLine(l lines) (to ask.Output, flush func() error) {
	var each [2]*lines
	for i := range each {
		own := l
		own.mu, own.to = &s.mu, func(b []byte) error { return s.write(i, b) }
		each[i] = &own
	}
	return func(toStderr bool, at time.Time, b []byte) error { return each[index(toStderr)].write(at, b) },
		func() error { return errors.Join(each[0].flush(), each[1].flush()) }
}

// err is why a stream takes no more, but for a reader that has gone, which is no error.
func (s *streams) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.failed {
		if err != nil && !errors.Is(err, syscall.EPIPE) {
			return err
		}
	}
	return nil
}

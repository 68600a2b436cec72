package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/vmmc-go/vmmc/internal/serve"
)

// screen is this tool's own terminal, in raw mode: it passes typed bytes on unchanged, and
// shows the program's output.
type screen struct {
	fd     int
	mu     sync.Mutex
	before *term.State // nil: it is as it was
}

// openScreen refuses what is no terminal.
func openScreen() (*screen, error) {
	s := &screen{fd: int(os.Stdin.Fd())}
	if !term.IsTerminal(s.fd) {
		return nil, serve.Usage("-t: the standard input is no terminal: leave out -t to pass it on as it is")
	}
	return s, nil
}

func (s *screen) size() (rows, columns uint32) {
	w, h, err := term.GetSize(s.fd)
	if err != nil {
		return 0, 0 // the size is unknown, and the program is told so
	}
	return uint32(h), uint32(w)
}

// raw puts the terminal into raw mode, and again after another program had it.
func (s *screen) raw() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err := term.MakeRaw(s.fd)
	if err != nil {
		return fmt.Errorf("take the terminal for the program: %w", err)
	}
	if s.before == nil {
		s.before = was
	}
	return nil
}

// restore leaves the terminal as it was.
func (s *screen) restore() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		_ = term.Restore(s.fd, s.before)
		s.before = nil
	}
}

// lost is an error of using the terminal: that it is gone, if it is. The signal that
// tells so may come later.
func (s *screen) lost(err error) error {
	if s != nil && errors.Is(err, syscall.EIO) {
		return errHungUp{syscall.SIGHUP}
	}
	return err
}

// guard is deferred on each goroutine that runs while the terminal is taken: a
// panic there ends the program without the deferred calls of other goroutines.
func (s *screen) guard() {
	if why := recover(); why != nil {
		s.restore()
		panic(why)
	}
}

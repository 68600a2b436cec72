package supervise

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// maxTerm bounds the name of a kind of terminals.
const maxTerm = 64

// ends are what a program and its supervisor have of its input and output.
type ends struct {
	program [3]*os.File
	output  *os.File
	to      *attended // nil: the input is empty, and nobody looks
}

// ends makes them as they are ordered.
func (s *supervisor) ends(o Order) (*ends, error) {
	if t := o.Terminal; t != nil {
		if len(t.Term) > maxTerm || strings.ContainsFunc(t.Term, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, code.New(code.BadArg, "the kind of terminal %q is no name of at most %d plain characters", t.Term, maxTerm)
		}
		screen, program, err := unix.OpenTerminal(t.Size)
		if err != nil {
			return nil, code.New(code.NoMem, "start %s: %v", o.Path, err)
		}
		return &ends{[3]*os.File{program, program, program}, screen, newAttended(screen, screen)}, nil
	}
	r, w, err := unix.OutputPipe()
	if err != nil {
		return nil, code.New(code.NoMem, "start %s: %v", o.Path, err)
	}
	e := &ends{program: [3]*os.File{nil, w, w}, output: r}
	if o.Input {
		var in *os.File
		if e.program[0], in, err = unix.InputPipe(); err == nil {
			e.to = newAttended(in, nil)
		}
	} else {
		e.program[0], err = os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	}
	if err != nil {
		e.close()
		return nil, code.New(code.NoMem, "start %s: %v", o.Path, err)
	}
	return e, nil
}

// closeProgram closes what the program has by now.
func (e *ends) closeProgram() {
	if e.program[0] != nil {
		_ = e.program[0].Close()
	}
	_ = e.program[1].Close() // the others are the same
}

func (e *ends) close() {
	e.closeProgram()
	if e.to != nil {
		e.to.release()
	}
	_ = e.output.Close()
}

// attended finds a program that can be attended to.
func (s *supervisor) attended(pid uint32) (*attended, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.find(pid)
	if err != nil {
		return nil, err
	}
	if p.out == nil || p.out.to == nil {
		return nil, code.New(code.BadArg, "process %d of session %q on node %q has neither input nor a terminal", pid, s.spec.Session, s.spec.Node)
	}
	return p.out.to, nil
}

func (s *supervisor) attend(ctx context.Context, r AttendRequest) (local.Empty, error) {
	a, err := s.attended(r.PID)
	if err != nil {
		return local.Empty{}, err
	}
	a.come()
	defer a.leave()
	select {
	case <-ctx.Done():
	case <-a.free:
	}
	return local.Empty{}, context.Cause(ctx)
}

func (s *supervisor) write(ctx context.Context, r WriteRequest) (Written, error) {
	if r.Offset < 0 || len(r.Data) > MaxChunk {
		return Written{}, code.New(code.BadArg, "write %d bytes of input from byte %d on: at most %d at a time", len(r.Data), r.Offset, MaxChunk)
	}
	a, err := s.attended(r.PID)
	if err != nil {
		return Written{}, err
	}
	return a.write(r, time.Now().Add(max(r.For, 10*time.Millisecond)), ctx.Done())
}

func (s *supervisor) resize(r ResizeRequest) (local.Empty, error) {
	a, err := s.attended(r.PID)
	if err == nil && a.tty == nil {
		err = code.New(code.BadArg, "process %d of session %q on node %q has no terminal", r.PID, s.spec.Session, s.spec.Node)
	}
	if err == nil && !a.over() {
		err = unix.Resize(a.tty, r.Size)
	}
	return local.Empty{}, err
}

// readAttended gives what who attends to a program has not seen yet.
func (s *supervisor) readAttended(ctx context.Context, r ReadRequest) (Chunk, error) {
	late := time.NewTimer(r.For)
	defer late.Stop()
	for {
		s.mu.Lock()
		p, err := s.find(r.PID)
		if err != nil {
			s.mu.Unlock()
			return Chunk{}, err
		}
		ended, changed, out := p.Ended, s.changed, p.out
		s.mu.Unlock()
		if out == nil || out.to == nil {
			return Chunk{}, code.New(code.BadArg, "process %d of session %q on node %q has neither input nor a terminal", r.PID, s.spec.Session, s.spec.Node)
		}
		done := ended && out.quiet() // before the output is looked at, so that nothing comes between
		b, news, err := out.to.unseen(r.Offset, min(max(r.Max, 1), MaxChunk))
		switch {
		case err != nil || len(b) > 0:
			return Chunk{Data: b}, err
		case done:
			out.to.release()
			return Chunk{Done: true}, nil
		case news == nil && !ended:
			return Chunk{}, code.New(code.BadRbufState, "process %d of session %q on node %q was hung up", r.PID, s.spec.Session, s.spec.Node)
		}
		var soon <-chan time.Time
		if ended {
			soon = time.After(time.Millisecond) // the rest of its output is on its way
		}
		select {
		case <-news:
		case <-changed:
		case <-soon:
		case <-late.C:
			return Chunk{}, nil
		case <-ctx.Done():
			return Chunk{}, context.Cause(ctx)
		}
	}
}

package supervise

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// maxTerm bounds the name of a kind of terminals.
const maxTerm = 64

// ends are what a program and its supervisor have of its input and output.
type ends struct {
	program [3]*os.File
	// Of standard output and of standard error; the second is nil with a terminal.
	output     [2]*os.File
	attachment *attachment // nil: no input, and no client attaches
}

// openEnds makes them as they are ordered.
func (s *supervisor) openEnds(o Order) (_ *ends, err error) {
	if t := o.Terminal; t != nil {
		if len(t.Term) > maxTerm || strings.ContainsFunc(t.Term, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, code.New(code.BadArg,
				"the kind of terminal %q is no name of at most %d plain characters", t.Term, maxTerm)
		}
		screen, program, err := unix.OpenTerminal(t.Size)
		if err != nil {
			return nil, code.New(code.NoMem, "start %s: %v", o.Path, err)
		}
		return &ends{[3]*os.File{program, program, program}, [2]*os.File{screen}, newAttachment(screen, screen)}, nil
	}
	e := &ends{}
	for i := range e.output {
		if e.output[i], e.program[1+i], err = unix.OutputPipe(); err != nil {
			e.close()
			return nil, code.New(code.NoMem, "start %s: %v", o.Path, err)
		}
	}
	if o.Input {
		var in *os.File
		if e.program[0], in, err = unix.InputPipe(); err == nil {
			e.attachment = newAttachment(in, nil)
		}
	} else {
		if o.Follow {
			e.attachment = newAttachment(nil, nil)
		}
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
	for i, f := range e.program {
		if f != nil && (i == 0 || f != e.program[0]) { // of a terminal all are the same
			_ = f.Close()
		}
	}
}

func (e *ends) close() {
	e.closeProgram()
	if e.attachment != nil {
		e.attachment.release()
	}
	for _, f := range e.output {
		if f != nil {
			_ = f.Close()
		}
	}
}

// findAttended finds a program that can be attended to.
func (s *supervisor) findAttended(pid uint32) (*attachment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.find(pid)
	if err != nil {
		return nil, err
	}
	if p.out == nil || p.out.attachment == nil || p.out.attachment.in == nil {
		return nil, code.New(code.BadArg, "process %d of session %q on node %q has neither input nor a terminal", pid, s.spec.Session, s.spec.Node)
	}
	return p.out.attachment, nil
}

func (s *supervisor) attend(ctx context.Context, from *nodeproto.Conn, r AttendRequest) (nodeproto.Empty, error) {
	if r.Group != 0 {
		return s.attendGroup(ctx, from, r.Group)
	}
	a, err := s.findAttended(r.PID)
	if err != nil {
		return nodeproto.Empty{}, err
	}
	a.attach()
	defer a.detach()
	select {
	case <-ctx.Done():
	case <-a.released:
	}
	return nodeproto.Empty{}, context.Cause(ctx)
}

func (s *supervisor) write(ctx context.Context, r WriteRequest) (Written, error) {
	if r.Offset < 0 || len(r.Data) > MaxChunk {
		return Written{}, code.New(code.BadArg,
			"write %d bytes of input from byte %d on: at most %d at a time", len(r.Data), r.Offset, MaxChunk)
	}
	a, err := s.findAttended(r.PID)
	if err != nil {
		return Written{}, err
	}
	return a.write(r, time.Now().Add(max(r.For, 10*time.Millisecond)), ctx.Done())
}

func (s *supervisor) resize(r ResizeRequest) (nodeproto.Empty, error) {
	a, err := s.findAttended(r.PID)
	if err == nil && a.tty == nil {
		err = code.New(code.BadArg,
			"process %d of session %q on node %q has no terminal", r.PID, s.spec.Session, s.spec.Node)
	}
	if err == nil && !a.over() {
		err = unix.Resize(a.tty, r.Size)
	}
	return nodeproto.Empty{}, err
}

// readAttended returns output that the attached client has not seen yet.
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
		if r.Apart && (out == nil || out.attachment == nil) { // another supervisor has started it
			r.Attended = false
			return s.read(ctx, r)
		}
		if out == nil || out.attachment == nil || out.attachment.in == nil && !r.Apart {
			return Chunk{}, code.New(code.BadArg, "process %d of session %q on node %q has neither input nor a terminal", r.PID, s.spec.Session, s.spec.Node)
		}
		done := ended && out.idle() // before the output is looked at, so that nothing comes between
		b, parts, news, err := out.attachment.unseen(r.Offset, min(max(r.Max, 1), MaxChunk))
		if !r.Apart {
			parts = nil
		}
		out.attachment.keepAttached()
		switch {
		case err != nil || len(b) > 0:
			return Chunk{Data: b, Apart: r.Apart, Pieces: parts, Next: r.Offset + int64(len(b))}, err
		case news == nil && out.attachment.in == nil: // it was not read for long; the file has it
			r.Attended = false
			return s.read(ctx, r)
		case done:
			out.attachment.release()
			return Chunk{Done: true, Apart: r.Apart, Next: r.Offset}, nil
		case news == nil && !ended:
			if s.isEnding() { // which was set first
				return Chunk{}, s.deleted()
			}
			return Chunk{}, code.New(code.BadRbufState,
				"process %d of session %q on node %q was hung up", r.PID, s.spec.Session, s.spec.Node)
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
			return Chunk{Apart: r.Apart, Next: r.Offset}, nil
		case <-ctx.Done():
			return Chunk{}, context.Cause(ctx)
		}
	}
}

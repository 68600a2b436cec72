package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// answer answers a request of a daemon's connection.
func (s *supervisor) answer(ctx context.Context, from *nodeproto.Conn, m nodeproto.Method, body []byte) (any, error) {
	switch m {
	case Greet:
		return with(body, func(g Greeting) (State, error) {
			if g.Session != s.spec.Session || g.Marker != s.spec.Marker {
				return State{}, code.New(code.Protocol, "this is the supervisor of session %q, not of %q as it was made now", s.spec.Session, g.Session)
			}
			return State{Base: s.base, Streams: true, Leases: true, Affine: true}, nil
		})
	case Start:
		return with(body, func(o Order) (Program, error) { return s.start(ctx, o) })
	case Note:
		return with(body, func(p Program) (nodeproto.Empty, error) { return s.addJoined(ctx, p) })
	case Leave:
		return with(body, s.removeJoined)
	case List:
		return with(body, s.list)
	case Await:
		return with(body, func(r AwaitRequest) (Program, error) { return s.await(ctx, r) })
	case Signal:
		return with(body, s.signal)
	case Read:
		return with(body, func(r ReadRequest) (Chunk, error) { return s.read(ctx, r) })
	case Attend:
		return with(body, func(r AttendRequest) (nodeproto.Empty, error) { return s.attend(ctx, from, r) })
	case Write:
		return with(body, func(r WriteRequest) (Written, error) { return s.write(ctx, r) })
	case Resize:
		return with(body, s.resize)
	case End:
		return s.end()
	}
	return nil, code.New(code.BadArg, "unknown request %d: the daemon is newer than this session's supervisor, which is of the time when the session was made", m)
}

func with[In, Out any](body []byte, f func(In) (Out, error)) (any, error) {
	in, err := nodeproto.Decode[In](body)
	if err != nil {
		return nil, err
	}
	return f(in)
}

func (s *supervisor) find(pid uint32) (*program, error) {
	if p := s.programs[pid]; p != nil {
		return p, nil
	}
	return nil, code.New(code.NoSuchProcess,
		"session %q has no process %d on node %q", s.spec.Session, pid, s.spec.Node)
}

// snapshot is what clients are told of a program. The caller holds mu.
func (p *program) snapshot() Program {
	t := p.Program
	if p.out != nil {
		p.out.fillStats(&t)
	}
	return t
}

func (s *supervisor) list(r ListRequest) (Listing, error) {
	s.mu.Lock()
	var all []*program
	for _, p := range s.programs {
		if p.PID > r.After && (!r.Running || !p.Ended || r.Reserve && p.Reserve != "") {
			all = append(all, p)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *program) int { return cmp.Compare(a.PID, b.PID) })
	var l Listing
	size := 0
	for _, p := range all {
		s.mu.Lock()
		t := p.snapshot()
		s.mu.Unlock()
		b, err := json.Marshal(t)
		if err != nil {
			return l, err
		}
		if size += len(b); size > maxPage && len(l.Programs) > 0 {
			l.More = true
			break
		}
		l.Programs = append(l.Programs, t)
	}
	return l, nil
}

// await waits until a program has ended and what it has printed is in its file,
// or for as long as it may.
func (s *supervisor) await(ctx context.Context, r AwaitRequest) (Program, error) {
	late := time.NewTimer(r.For)
	defer late.Stop()
	for {
		s.mu.Lock()
		p, err := s.find(r.PID)
		if err != nil {
			s.mu.Unlock()
			return Program{}, err
		}
		t, changed, out := p.snapshot(), s.changed, p.out
		s.mu.Unlock()
		if t.Ended {
			if out != nil {
				out.settle(late.C)
				out.fillStats(&t)
			}
			return t, nil
		}
		select {
		case <-changed:
		case <-late.C:
			return t, nil
		case <-ctx.Done():
			return t, context.Cause(ctx)
		}
	}
}

// read gives a piece of a program's output.
func (s *supervisor) read(ctx context.Context, r ReadRequest) (Chunk, error) {
	if r.Offset < 0 || r.Max < 0 {
		return Chunk{}, code.New(code.BadArg, "read %d bytes of output from byte %d on", r.Max, r.Offset)
	}
	if r.Attended {
		return s.readAttended(ctx, r)
	}
	deadline := time.Now().Add(r.For)
	for {
		before := s.printed(r.PID)
		c, err := s.readNow(ctx, r)
		for {
			if err != nil || len(c.Data) > 0 || c.Lost > 0 || c.Done || r.Tail != nil ||
				time.Now().After(deadline) || ctx.Err() != nil {
				return c, err
			}
			time.Sleep(20 * time.Millisecond) // files do not say that they have grown
			if now := s.printed(r.PID); now < 0 || now != before {
				break
			}
		}
	}
}

// printed is how often a program that runs has got output into its file, or -1
// where that is not known: then the file must be looked at.
func (s *supervisor) printed(pid uint32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.programs[pid]
	if p == nil || p.out == nil || p.Ended {
		return -1
	}
	return p.out.written.Load()
}

func (s *supervisor) readNow(ctx context.Context, r ReadRequest) (Chunk, error) {
	s.mu.Lock()
	p, err := s.find(r.PID)
	if err != nil {
		s.mu.Unlock()
		return Chunk{}, err
	}
	t, out := p.snapshot(), p.out
	s.mu.Unlock()
	if t.Joined {
		return Chunk{}, code.New(code.BadArg, "process %d has joined session %q by itself: its output is not redirected", r.PID, s.spec.Session)
	}
	// Asked for before the file is read, so that nothing comes between.
	done := t.Ended && (out == nil || out.idle())
	if r.Apart {
		c, is, err := s.readIndexed(ctx, out, t, r)
		if err != nil && ctx.Err() != nil {
			return Chunk{}, context.Cause(ctx)
		}
		if err != nil {
			return Chunk{}, code.New(code.BadArg,
				"read the output of process %d on node %q: %v", r.PID, s.spec.Node, err)
		}
		if is {
			c.Done = done && r.Tail == nil && len(c.Data) == 0 && c.Next >= max(t.Output, r.Offset)
			return c, nil
		}
	}
	if err := s.fileSlots.logs.Acquire(ctx); err != nil {
		return Chunk{}, err
	}
	defer s.fileSlots.logs.Release()
	f, err := s.openOwn(within(s.spec.Output)+"/"+LogName(s.spec.Node, r.PID), os.O_RDONLY)
	if os.IsNotExist(err) {
		return Chunk{Done: done}, nil // it was removed: there is no more, or not yet
	}
	if err != nil {
		return Chunk{}, code.New(code.BadArg,
			"read the output of process %d on node %q: %v", r.PID, s.spec.Node, err)
	}
	defer f.Close()
	b := make([]byte, min(max(r.Max, 1), MaxChunk))
	n, _ := f.ReadAt(b, t.Start+r.Offset)
	return Chunk{Data: b[:n], Done: done && n == 0}, nil
}

// readIndexed is readNow of a program whose output has an index.
func (s *supervisor) readIndexed(
	ctx context.Context, out *output, t Program, r ReadRequest,
) (c Chunk, is bool, err error) {
	if out != nil {
		c, err = out.read(ctx, r)
		return c, true, err
	}
	if err := s.fileSlots.logs.Acquire(ctx); err != nil {
		return Chunk{}, false, err
	}
	defer s.fileSlots.logs.Release()
	v, header := openIndex(t.PID)
	if v == nil {
		return Chunk{}, false, nil
	}
	defer v.close()
	f, err := s.openIndexed(LogName(s.spec.Node, t.PID), header)
	if f != nil {
		defer f.Close()
	}
	c, err = v.answer(ctx, f, err, r, max(t.Output, v.end()), t.Why)
	return c, true, err
}

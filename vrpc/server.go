package vrpc

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// Server serves services, each registered once, to all its transports at once. Its methods may be
// called by several goroutines.
type Server struct {
	settings
	table     atomic.Pointer[table]
	running   *semaphore.Semaphore // one for each procedure that runs
	ctx       context.Context      //nolint:containedctx // what procedures run under, ended by Close
	end       context.CancelFunc
	acceptCtx context.Context //nolint:containedctx // ended when no more calls are taken, at ctx's end at the latest
	stop      context.CancelFunc

	mu     sync.Mutex // held to change what follows, and table
	closed bool
	open   map[io.Closer]struct{}
	work   sync.WaitGroup
}

var _ Registrar = (*Server)(nil)

// NewServer returns a server of nothing.
func NewServer(opts ...ServerOption) *Server {
	s := &Server{settings: defaults(), open: map[io.Closer]struct{}{}}
	for _, o := range opts {
		o(&s.settings)
	}
	s.logger = slog.New(limitedHandler{s.logger.Handler(), newLogLimiter()})
	s.running = semaphore.New(s.concurrency)
	s.ctx, s.end = context.WithCancel(context.Background())
	s.acceptCtx, s.stop = context.WithCancel(s.ctx)
	s.table.Store(new(table))
	return s
}

// Register has a service served, from now on.
func (s *Server) Register(v *Service) error { return s.register(v, false) }

// InPlace registers services whose procedures keep nothing of their arguments after they have
// returned, and get them without a copy: opaque data is part of the request as it arrived. By
// remote memory that is memory which the client can write, also while the procedure looks at it: a
// procedure that must not trust its clients copies what it checks before it does.
func (s *Server) InPlace() Registrar { return inPlace{s} }

type inPlace struct{ s *Server }

func (r inPlace) Register(v *Service) error { return r.s.register(v, true) }

func (s *Server) register(v *Service, inPlace bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table.Load().with(v, inPlace)
	if err == nil {
		s.table.Store(t)
	}
	return err
}

// Services are those that are registered.
func (s *Server) Services() []*Service { return slices.Clone(s.table.Load().services) }

// Close ends all transports and connections and the contexts of procedures that run, and returns
// when these have returned. It waits for no client.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.end()
	for c := range s.open {
		_ = c.Close() // it is read from until it fails
	}
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// track has Close close c, and wait for leave.
func (s *Server) track(c io.Closer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.open[c] = struct{}{}
	s.work.Add(1)
	return nil
}

func (s *Server) untrack(c io.Closer) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	_ = c.Close()
	s.work.Done()
}

// begin waits for a place to run a procedure in. done gives it back.
func (s *Server) begin() bool {
	return s.running.Acquire(s.ctx) == nil
}

func (s *Server) done() { s.running.Release() }

// settings are what options change.
type settings struct {
	concurrency int
	perCaller   int
	connections int
	limit       int
	decoded     int // 0: what package xdr has
	area        int
	exports     []vmmc.ExportOption
	datagram    int
	ordered     bool
	allow       func(ctx context.Context, s *Service, procedure uint32) error
	logger      *slog.Logger
	times
}

// pastDeadline is a time of which everything is over that waits until it.
var pastDeadline = time.Unix(1, 0)

// Shutdown takes no more connections and no more calls, lets the procedures that run end, sends
// what they have answered and closes the server. SunRPC has no word for that: a call that arrives
// meanwhile is lost with its connection. If ctx ends first the server is closed as by Close, and
// ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.stop()
	for c := range s.open {
		unblockReads(c)
	}
	s.mu.Unlock()
	over := make(chan struct{})
	go func() {
		s.work.Wait()
		close(over)
	}()
	var err error
	select {
	case <-over:
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = s.Close() // it has no other error than nil
	<-over
	return err
}

// unblockReads has c take no more.
func unblockReads(c io.Closer) {
	switch c := c.(type) {
	case *remote: // it has seen it itself
	case interface{ SetReadDeadline(t time.Time) error }: // replies are still to be written
		_ = c.SetReadDeadline(pastDeadline) // one that is closed has nothing to read either
	default:
		_ = c.Close()
	}
}

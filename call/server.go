package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// fenceTime is how long Shutdown waits until clients have the last answers. A variable for tests.
var fenceTime = 5 * time.Second

type serveOptions struct {
	slots, clients, handlers int
	export                   []vmmc.ExportOption // of letterbox and lanes
	permit                   []vmmc.ExportOption // of the letterbox
	log                      *slog.Logger
	closeExport              func(*vmmc.Export) error // of a lane; another one in tests
}

var serveDefaults = serveOptions{
	slots: 64, clients: 1024, handlers: 64, closeExport: (*vmmc.Export).Close,
}

// MaxSlots is how many slots a client may have ([Slots]); without it that is 64. It is at most
// 1,024. [Dial] of a client that wants more fails with [vmmc.ErrNoMem].
//
// Experimental: it may change in any release.
func MaxSlots(n int) ServeOption { return func(o *serveOptions) { o.slots = n } }

// MaxClients is how many clients there may be at a time; without it that is 1,024. [Dial] of the
// next one fails with [vmmc.ErrNoMem].
//
// Experimental: it may change in any release.
func MaxClients(n int) ServeOption { return func(o *serveOptions) { o.clients = n } }

// Handlers is how many handlers may run at a time; without it that is 64. Further requests wait in
// their slots. A handler that makes calls which come back to its own server takes another place for
// each.
//
// Experimental: it may change in any release.
func Handlers(n int) ServeOption { return func(o *serveOptions) { o.handlers = n } }

// Permit lets exactly the processes dial that match one of perms, as [vmmc.Permit] does. A process
// that may dial can also keep others from dialling later.
//
// Experimental: it may change in any release.
func Permit(perms ...vmmc.Permission) ServeOption {
	return func(o *serveOptions) { o.permit = append(o.permit, vmmc.Permit(perms...)) }
}

// Logger is where panics of handlers and clients that break the protocol are logged; without it
// that is [slog.Default].
//
// Experimental: it may change in any release.
func Logger(l *slog.Logger) ServeOption { return func(o *serveOptions) { o.log = l } }

func (o *serveOptions) check() error {
	switch {
	case o.slots < 1 || o.slots > maxSlots:
		return fmt.Errorf("%d slots: at least 1, and at most %d", o.slots, maxSlots)
	case o.clients < 1:
		return fmt.Errorf("%d clients: at least 1", o.clients)
	case o.handlers < 1 || o.handlers > math.MaxInt32:
		return fmt.Errorf("%d handlers: at least 1", o.handlers)
	}
	return nil
}

// Server runs a function for its clients.
//
// Experimental: it may change in any release.
type Server struct {
	shape
	p           *vmmc.Process
	name        string
	answerPrint []byte // the fingerprint of the answers' layout
	opts        serveOptions
	newValues   func() values
	// exportLane exports the memory of a lane.
	exportLane func(*vmmc.Memory, []vmmc.ExportOption) (*vmmc.Export, error)
	letterbox  pair.Buffer
	listener   *pair.Listener
	ready      func() bool // anyRequest
	leading

	ctx    context.Context //nolint:containedctx // that of the handlers; ends with Close
	end    context.CancelFunc
	taking context.Context //nolint:containedctx // ends when no request is taken any more
	stop   context.CancelFunc

	closeMu sync.Mutex // Held by Shutdown and Close, except while they wait for handlers.
	// Closed when the server has stopped and no worker is left. Guarded by closeMu.
	quiet    chan struct{}
	released bool // The letterbox is closed. Guarded by closeMu.

	mu     sync.Mutex
	conns  []*conn // Guarded by mu.
	first  int     // The connection where the next look begins. Guarded by mu.
	closed bool    // No connection is added any more. Guarded by mu.
	// Connections that have ended, and whose lanes could not be closed. Guarded by mu.
	unclosed []*conn
	ends     sync.WaitGroup
	revokes  sync.WaitGroup // connections whose export is open; added to under mu, unless closed
}

// conn is what the server has of one client.
type conn struct {
	shape
	im  *vmmc.Import    // the client's export
	own pair.Buffer     // the lane
	mem []byte          // of own
	ctx context.Context //nolint:containedctx // that of the handlers of its calls
	end context.CancelFunc
	// refused reports whether the client's answers are of another layout: its buffer may have no room
	// for an answer, so no handler runs for it.
	refused bool

	slots  []request
	first  int            // The slot where the next look begins. Guarded by Server.mu.
	active sync.WaitGroup // calls that were taken and not answered; added to under Server.mu
}

// request is a slot of a lane.
type request struct {
	word   *atomic.Uint32 // the low word of the number of the last request that has arrived
	taken  atomic.Uint32  // of the one that was taken
	busy   atomic.Bool    // Reports whether a worker has it.
	number uint64         // that was taken; whose worker has made it busy
}

// isNew reports whether a request has arrived that was not taken.
func (r *request) isNew() bool { return r.word.Load() != r.taken.Load() }

// values are those that a worker runs the function with.
type values struct {
	q, a []byte
	run  func(context.Context) error
}

// Serve publishes a server under a name, see [vmmc.Export.PublishAs], and returns. From then on f
// runs for the clients' calls, on goroutines of the server's, several at a time ([Handlers]). Call
// [Server.Shutdown] or [Server.Close] before the process is closed. Errors: a [*view.TypeError];
// [vmmc.ErrBadArg] for an option that cannot be; those of [vmmc.Process.Export] and PublishAs.
//
// Experimental: it may change in any release.
func Serve[Q, A any](
	ctx context.Context, p *vmmc.Process, name string,
	f func(ctx context.Context, q *Q, a *A) error, opts ...ServeOption,
) (*Server, error) {
	op := fmt.Sprintf("serve calls as %q", name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	q, err := typeOf[Q]()
	if err != nil {
		return nil, err
	}
	a, err := typeOf[A]()
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, pair.BadArg(op, errors.New("the function is nil"))
	}
	s := &Server{
		shape: shape{request: q.size, answer: a.size}, p: p, name: name, answerPrint: a.print,
		opts: serveDefaults,
	}
	for _, o := range opts {
		if o == nil {
			return nil, pair.BadArg(op, errors.New("an option is nil"))
		}
		o(&s.opts)
	}
	if err := s.opts.check(); err != nil {
		return nil, pair.BadArg(op, err)
	}
	if _, err := s.withSlots(1); err != nil {
		return nil, pair.BadArg(op, err)
	}
	s.newValues = func() values {
		request, answer := new(Q), new(A)
		return values{
			q.values.Of(request), a.values.Of(answer),
			func(ctx context.Context) error { return f(ctx, request, answer) },
		}
	}
	s.exportLane = func(mem *vmmc.Memory, opts []vmmc.ExportOption) (*vmmc.Export, error) {
		return exportAs[A](p, mem, opts)
	}
	s.ready = s.anyRequest
	s.ctx, s.end = context.WithCancel(context.Background())
	s.taking, s.stop = context.WithCancel(s.ctx)
	s.initLeading(s)
	s.listener = pair.NewListener(p, s.accept)
	s.letterbox, err = pair.NewBufferBy(p, (letterboxSize+q.size-1)/q.size*q.size,
		func(mem *vmmc.Memory) (*vmmc.Export, error) {
			copy(mem.Bytes()[magicOff:], magic)
			opts := slices.Concat(s.opts.export, s.opts.permit)
			return exportAs[Q](p, mem, append(opts, vmmc.WithHandler(s.listener.Handle)))
		})
	if err != nil {
		s.end()
		return nil, err
	}
	s.handOver() // to the first worker
	if err := s.letterbox.PublishAs(ctx, name); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

type callerKey struct{}

// Caller is the process whose call a handler runs for, by the context that the handler was given.
// ok is false for other contexts.
//
// Experimental: it may change in any release.
func Caller(ctx context.Context) (id vmmc.ProcessID, ok bool) {
	id, ok = ctx.Value(callerKey{}).(vmmc.ProcessID)
	return id, ok
}

// accept makes the connection of a client.
func (s *Server) accept(theirs *vmmc.Import) (id uint32, err error) {
	n := s.slotsOf(theirs.Size())
	l := theirs.Label()
	refused := len(l) > 0 && !bytes.Equal(l, s.answerPrint)
	if refused {
		n = 1 // Answers of its layout may have another size. It refuses the lane, whose label says why.
	}
	if n < 1 || n > s.opts.slots {
		return 0, fmt.Errorf("the client's buffer has %d bytes, and %d slots", theirs.Size(), n)
	}
	c := &conn{im: theirs, refused: refused, slots: make([]request, n)}
	if c.shape, err = s.withSlots(n); err == nil {
		err = s.hasRoom()
	}
	if err != nil {
		return 0, err
	}
	opts := append(slices.Clip(s.opts.export), pair.For(theirs.Exporter()))
	c.own, err = pair.NewBufferBy(s.p, c.requestsSize(), func(mem *vmmc.Memory) (*vmmc.Export, error) {
		return s.exportLane(mem, opts)
	})
	if err != nil {
		return 0, err
	}
	c.mem = c.own.Bytes()
	for i := range c.slots {
		c.slots[i].word = shm.Word(c.mem, c.requestWord(i))
	}
	ctx := context.WithValue(s.ctx, callerKey{}, theirs.Exporter())
	c.ctx, c.end = context.WithCancel(ctx)
	if err := s.add(c); err != nil {
		c.end()
		return 0, errors.Join(err, c.own.Close())
	}
	return c.own.ID(), nil
}

// hasRoom reports why no connection can be added.
func (s *Server) hasRoom() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mayAdd()
}

func (s *Server) mayAdd() error {
	switch {
	case s.closed:
		return s.closedError("accept a client of")
	case len(s.conns) >= s.opts.clients:
		return fmt.Errorf("there are %d clients", len(s.conns))
	}
	return nil
}

func (s *Server) closedError(what string) error {
	return pair.ClosedError(what+" server "+strconv.Quote(s.name), "the server")
}

func (s *Server) add(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.mayAdd(); err != nil {
		return err
	}
	s.conns = append(s.conns, c)
	s.revokes.Add(1)
	s.ends.Go(func() { s.follow(c) })
	return nil
}

// follow ends a connection: when its client has ended, broken the protocol, or the server is
// closed.
func (s *Server) follow(c *conn) {
	select {
	case <-c.im.Done():
	case <-c.ctx.Done():
	}
	c.end()
	pair.At("serve.dropped")
	s.mu.Lock()
	s.conns = slices.DeleteFunc(s.conns, func(o *conn) bool { return o == c })
	s.mu.Unlock()
	_ = errors.Join(c.im.Close(), s.opts.closeExport(c.own.Export)) // closeEnded repeats what fails
	s.revokes.Done()
	c.active.Wait() // then no worker looks at the lane
	s.mu.Lock()
	s.unclosed = append(s.unclosed, c)
	s.mu.Unlock()
	_ = s.closeEnded()
}

// closeEnded closes the lanes of connections that have ended, also those where that has failed
// before.
func (s *Server) closeEnded() (err error) {
	s.mu.Lock()
	ended := s.unclosed
	s.unclosed = nil
	s.mu.Unlock()
	for _, c := range ended {
		e := errors.Join(c.im.Close(), s.opts.closeExport(c.own.Export))
		if e == nil {
			e = c.own.Close()
		}
		if e == nil {
			continue
		}
		err = errors.Join(err, e)
		s.mu.Lock()
		s.unclosed = append(s.unclosed, c)
		s.mu.Unlock()
	}
	return err
}

// anyRequest reports whether a request has come. It only reads.
func (s *Server) anyRequest() bool {
	s.mu.Lock() // for short: no holder waits
	defer s.mu.Unlock()
	for _, c := range s.conns {
		for i := range c.slots {
			if r := &c.slots[i]; r.isNew() && !r.busy.Load() {
				return true
			}
		}
	}
	return false
}

// take takes a request into a worker's values, of the clients in turn. Nil: there is none.
func (s *Server) take(w *worker) *conn {
	for {
		c, i := s.findRequest()
		if c == nil || s.takeFrom(c, i, w) {
			return c
		}
	}
}

// findRequest makes the slot of the next request busy.
func (s *Server) findRequest() (*conn, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.conns {
		at := s.first + k
		if at >= len(s.conns) {
			at %= len(s.conns)
		}
		c := s.conns[at]
		for j := range c.slots {
			i := c.first + j
			if i >= len(c.slots) {
				i -= len(c.slots)
			}
			if c.findAt(i) {
				c.first, s.first = (i+1)%len(c.slots), at+1
				return c, i
			}
		}
	}
	return nil, 0
}

// findAt makes a slot busy if it has a request. The caller holds Server.mu, so no other worker does
// the same, and the lane stays until the call is no longer active.
func (c *conn) findAt(i int) bool {
	r := &c.slots[i]
	if !r.isNew() || r.busy.Load() {
		return false
	}
	r.busy.Store(true) // for good, if the request is wrong
	c.active.Add(1)
	return true
}

// takeFrom takes the request of a slot that the worker has made busy, if its client keeps to the
// protocol. It holds no lock: a request may be long, and a logger slow.
func (s *Server) takeFrom(c *conn, i int, w *worker) bool {
	r := &c.slots[i]
	last := r.word.Load()
	at := c.requestAt(i)
	pair.At("serve.seen")
	number, kind, err := readRequest(c.mem[at+words(c.request):], last, r.number)
	if err == nil && c.refused {
		err = errors.New("it calls though its answers have another layout than the server's")
	}
	if err != nil {
		if c.im.Err() == nil && s.taking.Err() == nil {
			s.logger().Warn("call: a client breaks the protocol, its connection ends",
				"server", s.name, "client", c.im.Exporter(), "err", err)
		}
		c.end()
		c.active.Done()
		return false
	}
	r.number = number
	r.taken.Store(last)
	copy(w.q, c.mem[at:])
	w.conn, w.slot, w.void = c, i, kind == void
	return true
}

func (s *Server) logger() *slog.Logger {
	if s.opts.log != nil {
		return s.opts.log
	}
	return slog.Default()
}

// Shutdown ends the server: it takes no request any more, waits for the handlers that run, and
// until the clients have their answers, and then ends their connections. Requests that have arrived
// and were not taken are answered with [vmmc.ErrRevoked]. A client that is stopped, or whose link
// is away, delays it a few seconds at most. If the context ends before the handlers, they go on,
// and their clients get answers until the program calls Shutdown again, or Close. Errors:
// [vmmc.ErrTimeout] and [vmmc.ErrCanceled]; those of [vmmc.Export.Close], [vmmc.ErrNotInHandler].
// It is [vmmc.ErrBlockedNotifications], and nothing has happened, if a client dials while the
// program blocks its notifications. Called in a handler it waits for itself, as long as its context
// lets it.
//
// Experimental: it may change in any release.
func (s *Server) Shutdown(ctx context.Context) error {
	op := "shut down server " + strconv.Quote(s.name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return err
	}
	quiet, err := s.stopTaking()
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	select {
	case <-quiet:
	case <-ctx.Done():
		return fmt.Errorf("handlers run: %w", pair.ContextError(ctx, op))
	}
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	s.refuseRest(ctx)
	if err = s.release(); err == nil {
		s.ends.Wait()
		err = s.closeEnded()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// Close ends the server at once: the contexts of handlers that run end, and so do the clients'
// calls, with [vmmc.ErrRevoked]. It does not wait for handlers. Errors as [Server.Shutdown]. A
// second call does nothing.
//
// Experimental: it may change in any release.
func (s *Server) Close() error {
	op := "close server " + strconv.Quote(s.name)
	if err := pair.CheckCall(context.Background(), op); err != nil {
		return err
	}
	_, err := s.stopTaking()
	if err == nil {
		s.closeMu.Lock()
		defer s.closeMu.Unlock()
		if err = s.release(); err == nil {
			err = s.closeEnded()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// stopTaking ends the taking of requests. The channel is closed when the handlers have returned.
func (s *Server) stopTaking() (quiet chan struct{}, err error) {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	if s.quiet != nil {
		return s.quiet, nil
	}
	if err := s.letterbox.Export.Close(); errors.Is(err, vmmc.ErrBlockedNotifications) {
		return nil, err
	}
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stopLeading()
	s.stop()
	s.quiet = make(chan struct{})
	go func() {
		s.workers.Wait()
		close(s.quiet)
	}()
	return s.quiet, nil
}

// refuseRest answers what has arrived and was not taken, and waits until the clients have their
// answers. The caller holds closeMu, and there are no workers.
func (s *Server) refuseRest(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, fenceTime)
	defer stop()
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() { s.refuseAll(ctx, c) })
	}
	sent := make(chan struct{})
	go func() { // a link that is away may hold it up until the connection's end, which comes next
		defer close(sent)
		s.late.Wait()
	}()
	select {
	case <-sent:
	case <-ctx.Done():
	}
	wg.Wait()
}

// refuseAll is refuseRest of one connection.
func (s *Server) refuseAll(ctx context.Context, c *conn) {
	w := s.newWorker()
	for {
		s.mu.Lock()
		if !slices.Contains(s.conns, c) {
			s.mu.Unlock()
			return
		}
		i := 0
		for i < len(c.slots) && !c.findAt(i) {
			i++
		}
		s.mu.Unlock()
		if i == len(c.slots) || !s.takeFrom(c, i, w) {
			break
		}
		status := notRun
		if w.void {
			status = voided
		}
		b := putText(w.out, status, "", c.slots[w.slot].number)
		_ = c.im.Send(ctx, b, c.answerEnd(w.slot)-len(b))
		c.active.Done()
	}
	_ = c.im.Fence(ctx) // the end of the lane would overtake answers
}

// release ends all connections. The caller holds closeMu.
func (s *Server) release() error {
	s.end()
	s.revokes.Wait()
	if s.released {
		return nil
	}
	if err := s.letterbox.Close(); err != nil {
		return err
	}
	s.released = true
	return nil
}

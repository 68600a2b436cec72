package nodeproto

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Handler answers a request. It owns fds, which are foreign: see package foreign. The descriptors
// that it returns are closed once they are sent. It runs on its own goroutine, and its context ends
// when the caller gives up or the connection ends.
type Handler func(ctx context.Context, m Method, body []byte, fds []int) (answer any,
	answerFDs []int, err error)

// Conn is one end of a connection. Its methods may be called concurrently.
type Conn struct {
	c      *net.UnixConn
	source *foreign.Source // attributes received descriptors
	// Received descriptors that may be open before receiving pauses; 0: no bound.
	maxReceived  int
	handler      Handler
	share        *fairshare.Share // that the peer's requests run in; nil: they all run at once
	trace        Tracer           // nil: calls are not traced
	mayBeRefused atomic.Bool      // no packet has come yet: the first may be a refusal

	writing *semaphore.Semaphore // one: a packet
	pollMu  sync.Mutex           // held by the goroutine that polls for an answer

	mu      sync.Mutex
	next    uint64
	calls   map[uint64]chan answer
	serving map[uint64]context.CancelFunc
	queued  map[uint64]func() // withdraw requests that are queued in the share. Guarded by mu.
	held    heldRequests      // Guarded by mu.
	err     error

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	done   chan struct{}
}

type answer struct {
	body []byte
	fds  []int
	err  error
}

// wireError is an error on the wire.
type wireError struct {
	Code code.Code
	Text string
}

// refusedError is why the peer refused the connection.
type refusedError struct{ error }

// Refuse ends a connection that nothing was read of, and says why: all calls of the other end,
// which has [Dialled], fail with that, made already or not. It does not wait, and takes no more
// descriptors; those that are there only while fewer than most of that user are open, see
// [NewBoundedConn]. The packet is a failure of no request (0). A peer that does not know such
// packets ignores it.
func Refuse(c *net.UnixConn, most int, why error) {
	from := foreign.FromPeer(c)
	defer from.Release()
	defer foreign.HangUp(c, from)
	b, err := encode(header{kind: failure}, toWire(why))
	if err == nil {
		_, err = c.Write(b) // the socket buffer is empty: it is the first packet
	}
	// From here on the other end cannot send, and what it has sent goes: if it were there at the
	// end, the other end would read of a reset, and of that first.
	if e := c.CloseRead(); err == nil {
		err = e
	}
	raw, rerr := c.SyscallConn()
	if err != nil || rerr != nil {
		return
	}
	r := recvBuffers.Get().(*recvBuffer)
	defer recvBuffers.Put(r)
	l := &Conn{source: from, maxReceived: most}
	for more := true; more; { // to the end, or until there is nothing: what it sends from now on fails
		more = false
		_ = raw.Control(func(fd uintptr) {
			a, ok, _ := l.recvOne(int(fd), r)
			closeAll(a.fds)
			more = ok && a.err == nil && a.n > 0
		})
	}
}

// HangUp hangs up on a connection of which nothing was read.
func HangUp(c *net.UnixConn) {
	from := foreign.FromPeer(c)
	defer from.Release()
	foreign.HangUp(c, from)
}

// NewConn starts reading. The connection is closed by Close, or when the peer
// goes or says something malformed.
func NewConn(c *net.UnixConn, h Handler) *Conn {
	return startConn(c, h, false, 0, nil)
}

// NewBoundedConn is NewConn for an untrusted user at the other end: it receives nothing
// while so many descriptors that came from that user over all connections are open, and its
// requests run in the user's share. The connection may have come by a listener whose connections
// take no descriptors: it takes them from now on.
func NewBoundedConn(c *net.UnixConn, most int, share *fairshare.Share, h Handler) *Conn {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { unix.AwaitRights(int(fd)) })
	}
	return startConn(c, h, false, most, share)
}

// NewDialledConn is NewConn at the end that has dialled, which the other one may not take on: see
// [Refuse].
func NewDialledConn(c *net.UnixConn, h Handler) *Conn { return startConn(c, h, true, 0, nil) }

func startConn(
	c *net.UnixConn, h Handler, mayBeRefused bool, maxReceived int, share *fairshare.Share,
) *Conn {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Conn{
		c: c, source: foreign.FromPeer(c), maxReceived: maxReceived, handler: h, share: share,
		calls: map[uint64]chan answer{}, serving: map[uint64]context.CancelFunc{},
		queued:  map[uint64]func(){},
		writing: semaphore.New(1), ctx: ctx, cancel: cancel, done: make(chan struct{}),
	}
	l.mayBeRefused.Store(mayBeRefused)
	go l.read()
	return l
}

// Reached notes that the other end, or a process that it has sent descriptors to, may put
// descriptors into sockets: closing these may take as long as it likes. See package foreign.
func (l *Conn) Reached(sockets ...int) { l.source.Took(sockets...) }

// Done returns a channel that is closed when the connection has ended and its goroutines have
// returned.
func (l *Conn) Done() <-chan struct{} { return l.done }

// Lost returns a channel that is closed when the connection has ended. Err is set by then, and its
// goroutines may still run.
func (l *Conn) Lost() <-chan struct{} { return l.ctx.Done() }

// Err returns why the connection has ended, or nil.
func (l *Conn) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Alive reports whether the peer has not hung up. It asks the kernel, while Err only knows what was
// read so far.
func (l *Conn) Alive() bool {
	c, err := l.c.SyscallConn()
	return err == nil && l.Err() == nil && !unix.HungUp(c)
}

// Close ends the connection. It does not wait, so that a handler may call it.
func (l *Conn) Close() {
	l.fail(net.ErrClosed)
}

func (l *Conn) fail(err error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
	}
	l.mu.Unlock()
	if first {
		// Before cancel: a cancelled handler would send its error to the peer.
		foreign.HangUp(l.c, l.source)
	}
	l.cancel()
}

func (l *Conn) call(
	ctx context.Context, m Method, in any, fds []int, out func([]byte) error, awake bool,
) ([]int, error) {
	ch := make(chan answer, 1)
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return nil, l.closedError()
	}
	l.next++
	id := l.next
	l.calls[id] = ch
	l.mu.Unlock()
	err := l.writeWithin(ctx, header{kind: request, method: m, id: id}, in, fds)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
		// The peer takes no more data. Its last packets are still read, as they may hold the
		// reason; then this call ends too.
		_ = l.c.CloseRead()
		err = nil
	}
	if err != nil {
		l.forget(id, ch)
		return nil, err
	}
	if awake {
		l.poll(ch)
	}
	var a answer
	enter := fairshare.Leave(ctx)
	select {
	case a = <-ch:
		enter()
	case <-ctx.Done():
		l.cancelCall(id) // first: enter may wait for the user's other requests
		l.forget(id, ch)
		enter()
		return nil, context.Cause(ctx)
	}
	if a.err != nil {
		return nil, a.err
	}
	if out != nil {
		if err := out(a.body); err != nil {
			closeAll(a.fds)
			return nil, err
		}
	}
	return a.fds, nil
}

// Ask is Call with an answer of type T.
func Ask[T any](
	ctx context.Context, l *Conn, m Method, in any, fds []int,
) (v T, got []int, err error) {
	return callDecoded[T](ctx, l, m, in, fds, false)
}

func callDecoded[T any](
	ctx context.Context, l *Conn, m Method, in any, fds []int, awake bool,
) (v T, got []int, err error) {
	got, err = l.traced(ctx, m, in, fds, func(b []byte) (err error) {
		v, err = Decode[T](b)
		return err
	}, awake)
	return v, got, err
}

func (l *Conn) closedError() error {
	var r refusedError
	if errors.As(l.Err(), &r) {
		return r.error
	}
	return code.New(code.NoDaemon, "the connection to the daemon is closed: %v", l.Err())
}

// forget removes a call. An answer that has already come is discarded.
func (l *Conn) forget(id uint64, ch chan answer) {
	l.mu.Lock()
	delete(l.calls, id)
	l.mu.Unlock()
	select {
	case a := <-ch:
		closeAll(a.fds)
	default:
	}
}

// cancelTime is how long a call that is given up waits for the other end to take that news. The end
// takes it before what the caller sends next, unless it takes nothing for so long.
const cancelTime = 100 * time.Millisecond

// cancelCall tells the other end that no goroutine waits for an answer any more.
func (l *Conn) cancelCall(id uint64) {
	h := header{kind: cancel, id: id}
	ctx, stop := context.WithTimeout(l.ctx, cancelTime)
	defer stop()
	if l.writeWithin(ctx, h, nil, nil) == nil || !l.registerPoller() {
		return
	}
	go func() {
		defer l.wg.Done()
		_ = l.write(h, nil, nil)
	}()
}

// write is writeWithin for as long as the connection lives.
func (l *Conn) write(h header, body any, fds []int) error {
	return l.writeWithin(l.ctx, h, body, fds)
}

// writeStep is how often a write that waits for the other end looks whether its context has ended.
const writeStep = 50 * time.Millisecond

// The pauses between attempts to send descriptors to an end that does not take them yet: a daemon
// does so when it has accepted the connection, and nothing announces that. They double from the
// first to the longest, so that a hundred clients that wait leave the processors to the daemon. An
// end that takes them is found after twice the time that it took at most.
const (
	firstWritePause   = 50 * time.Microsecond
	longestWritePause = 50 * time.Millisecond
)

// pause waits, and reports whether neither the context nor the connection has ended meanwhile.
func (l *Conn) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-l.ctx.Done():
	}
	return false
}

// writeWithin sends a packet. It waits for the other end to read until the context ends, and fails
// the write after timeout.Control: a peer that does not read its socket for so long is
// disconnected.
func (l *Conn) writeWithin(ctx context.Context, h header, body any, fds []int) error {
	if len(fds) > MaxDescriptors { // the peer would take it for a malformed packet and hang up
		return fmt.Errorf("%w: %d descriptors, at most %d", ErrPacket, len(fds), MaxDescriptors)
	}
	h.fds = uint8(len(fds))
	b, err := encode(h, body)
	if err != nil {
		return err
	}
	if err := l.writing.Acquire(ctx); err != nil {
		return l.notTaken(err)
	}
	defer l.writing.Release()
	rights, step, pause := unix.Rights(fds), writeStep, firstWritePause
	for end := time.Now().Add(timeout.Control); ; {
		now := time.Now()
		_ = l.c.SetWriteDeadline(now.Add(min(step, end.Sub(now))))
		_, _, err = l.c.WriteMsgUnix(b, rights, nil) // all of the packet, or nothing
		switch {
		case err == nil:
			return nil
		case len(fds) > 0 && errors.Is(err, syscall.EPERM):
			if !l.pause(ctx, pause) {
				return l.notTaken(context.Cause(ctx))
			}
			pause = min(2*pause, longestWritePause)
			if !time.Now().Before(end) {
				return notWritten(fmt.Errorf("the other end has not accepted the connection within %v: %w",
					timeout.Control, err))
			}
			continue
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return notWritten(err)
		case ctx.Err() != nil:
			return l.notTaken(context.Cause(ctx))
		case !time.Now().Before(end):
			return notWritten(err)
		}
	}
}

// notTaken is the error of a packet that the other end had no room for before its context ended.
func (l *Conn) notTaken(err error) error {
	if l.ctx.Err() != nil { // the connection has ended
		return notWritten(net.ErrClosed)
	}
	return fmt.Errorf("the other end of the unix socket takes nothing: %w", err)
}

func notWritten(err error) error {
	return fmt.Errorf("%w (%w)", code.New(code.NoDaemon, "write to the unix socket"), err)
}

// recvBuffer receives one packet. A connection holds one only while it handles a packet: a node has
// many idle connections.
type recvBuffer struct {
	packet [MaxPacket + 1]byte
	oob    []byte
}

// The control buffer fits all descriptors that can come: the kernel closes descriptors that do not
// fit within the receiver's call.
var recvBuffers = sync.Pool{
	New: func() any { return &recvBuffer{oob: make([]byte, unix.RightsSpace(unix.MaxRights))} },
}

func (l *Conn) read() {
	c, err := l.c.SyscallConn()
	for err == nil {
		err = l.receive(c)
	}
	l.fail(err)
	l.withdrawQueued()
	// The polling goroutine may hold an answer. It stops at once now; taking pollMu waits for it.
	l.pollMu.Lock()
	l.pollMu.Unlock() //nolint:staticcheck // an empty section is meant
	l.mu.Lock()
	calls := l.calls
	l.calls = map[uint64]chan answer{}
	l.mu.Unlock()
	for _, ch := range calls {
		ch <- answer{err: l.closedError()}
	}
	l.wg.Wait()
	l.source.Release()
	close(l.done)
}

// arrival is the result of one receive call.
type arrival struct {
	n    int   // bytes
	fds  []int // foreign
	lost error // why some of them did not come
	err  error
}

// recvOne makes one receive call; ok is false if no packet was there. Received descriptors are
// attributed to the source.
func (l *Conn) recvOne(fd int, r *recvBuffer) (a arrival, ok, allowed bool) {
	allowed = l.source.Receive(l.maxReceived, func() []int {
		var on, flags int
		a.n, on, flags, ok, a.err = unix.ReceivePacket(fd, r.packet[:], r.oob)
		if ok && (on > 0 || flags != 0) {
			a.fds, a.lost = unix.Received(r.oob[:on], flags)
		}
		return a.fds
	})
	return a, ok, allowed
}

// receive waits for one packet and handles it.
func (l *Conn) receive(c syscall.RawConn) error {
	var r *recvBuffer
	var a arrival
	allowed := true
	err := c.Read(func(fd uintptr) (ok bool) {
		r = recvBuffers.Get().(*recvBuffer)
		if a, ok, allowed = l.recvOne(int(fd), r); !ok {
			recvBuffers.Put(r)
			r = nil
		}
		return ok || !allowed
	})
	switch {
	case err != nil:
		return err
	case !allowed: // the user's descriptors are slow to close: the user waits for that
		return l.source.Wait(l.ctx, l.maxReceived)
	}
	defer recvBuffers.Put(r)
	return l.handleArrival(r, a)
}

// handleArrival handles the result of a receive call.
func (l *Conn) handleArrival(r *recvBuffer, a arrival) error {
	if a.err == nil && a.n == 0 {
		a.err = io.EOF
	}
	if a.err != nil { // an empty packet reads as the end, and may bring descriptors all the same
		closeAll(a.fds)
		return a.err
	}
	return l.handlePacket(r.packet[:a.n], a.fds, a.lost)
}

func (l *Conn) handlePacket(b []byte, fds []int, lost error) error {
	if lost != nil {
		closeAll(fds)
		if errors.Is(lost, unix.ErrLost) {
			return l.reportLostDescriptors(b, lost)
		}
		return lost
	}
	h, body, err := parse(b)
	if err == nil && int(h.fds) != len(fds) {
		err = fmt.Errorf("%w: %d descriptors came, %d were announced", ErrPacket, len(fds), h.fds)
	}
	if err != nil {
		closeAll(fds)
		return err
	}
	body = append([]byte(nil), body...)
	first := l.mayBeRefused.Swap(false)
	switch h.kind {
	case request:
		l.serve(h, body, fds)
	case cancel:
		l.mu.Lock()
		if c := l.serving[h.id]; c != nil {
			c()
		}
		l.mu.Unlock()
		closeAll(fds)
	case failure:
		if h.id != 0 {
			l.deliver(h, body, fds)
			break
		}
		closeAll(fds)
		if !first { // only the first packet to a dialler can be a refusal
			return fmt.Errorf("%w: a failure of no request", ErrPacket)
		}
		why, err := fromWire(body)
		if err != nil {
			return err
		}
		return refusedError{why}
	default:
		l.deliver(h, body, fds)
	}
	return nil
}

// reportLostDescriptors handles a packet whose descriptors were lost because this process is at its
// limit. The caller gets the error, and the connection goes on.
func (l *Conn) reportLostDescriptors(b []byte, why error) error {
	h, _, err := parse(b)
	if err != nil || h.fds == 0 { // more than fit, and not one announced
		return errors.Join(err, why)
	}
	r := wireError{code.NoMem, why.Error()}
	switch h.kind {
	case request:
		return l.write(header{kind: failure, id: h.id}, r, nil)
	case reply, failure:
		body, err := json.Marshal(r)
		if err != nil {
			return err
		}
		h.kind = failure
		l.deliver(h, body, nil)
	}
	return nil
}

// fromWire decodes an error.
func fromWire(body []byte) (*code.Error, error) {
	r, err := Decode[wireError](body)
	if err != nil {
		return nil, err
	}
	return &code.Error{Code: r.Code, Text: r.Text}, nil
}

func (l *Conn) deliver(h header, body []byte, fds []int) {
	a := answer{body: body, fds: fds}
	if h.kind == failure {
		why, err := fromWire(body)
		if a.err = err; err == nil {
			a.err = why
		}
		closeAll(fds)
		a.fds = nil
	}
	l.mu.Lock()
	ch := l.calls[h.id]
	delete(l.calls, h.id)
	if ch != nil {
		ch <- a // has room for it; under mu, so that forget finds it
	}
	l.mu.Unlock()
	if ch == nil {
		closeAll(a.fds) // a failure's are closed already, and their numbers may be reused
	}
}

// maxText bounds an error's text on its way: it may quote what an untrusted peer chose,
// and must fit into a packet whatever JSON makes of it.
const maxText = MaxPacket / 16

// toWire encodes an error with its code.
func toWire(err error) wireError {
	c := code.Unknown
	var coded code.Code
	switch {
	case errors.As(err, &coded):
		c = coded
	case errors.Is(err, context.DeadlineExceeded):
		c = code.Timeout
	}
	text := err.Error()
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return wireError{c, text}
}

func closeAll(fds []int) { foreign.Close(fds...) }

package lock

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Unmapped has clients reach the host by the stream.
func Unmapped() Option {
	return func(o *options) { o.export = append(o.export, vmmc.Unmapped()) }
}

// HostReadOnly hosts a mutex whose clients can notify the host of nothing.
func HostReadOnly(ctx context.Context, t testing.TB, p *vmmc.Process, name string) {
	t.Helper()
	listener := pair.NewListener(p, func(theirs *vmmc.Import) (uint32, error) {
		lane, err := pair.NewBuffer(p, laneSize, nil, pair.For(theirs.Exporter()), vmmc.ReadOnly())
		if err != nil {
			return 0, err
		}
		return lane.ID(), nil
	})
	t.Cleanup(listener.Close)
	letterbox, err := pair.NewBuffer(p, letterboxSize, func(b []byte) { writeLetterbox(b, kindMutex) },
		vmmc.WithHandler(listener.Handle))
	if err == nil {
		err = letterbox.PublishAs(ctx, name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a false client notifies the host of.
const (
	OpRequest  = opRequest
	OpTry      = opTry
	OpWithdraw = opWithdraw
	OpRelease  = opRelease
	OpClose    = opClose
)

// Notify notifies the host of anything.
func (c *client) Notify(ctx context.Context, op, seq uint32, mark bool) error {
	return c.NotifyWord(ctx, opWord(op, seq, mark))
}

// NotifyWord notifies the host by any word.
func (c *client) NotifyWord(ctx context.Context, w uint32) error {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], w)
	return c.lane.SendNotify(ctx, b[:], opOff)
}

// StoreLease stores anything in the client's lane.
func (c *client) StoreLease(ctx context.Context, v uint64) error {
	_, err := c.lane.Swap64(ctx, leaseOff, v)
	return err
}

// LoadLease loads what is in the client's lane.
func (c *client) LoadLease(ctx context.Context) (uint64, error) {
	return c.lane.FetchAdd64(ctx, leaseOff, 0)
}

// Lane is what a client can write to.
func (c *client) Lane() *vmmc.Import { return c.lane }

// Own is what the host can write to.
func (c *client) Own() *vmmc.Export { return c.own.Export }

// SetSeq has the next request have the number after n. No other call may be under way.
func (c *client) SetSeq(n uint32) { c.seq = n }

// MaxSeq is the highest number of a request.
const MaxSeq = maxSeq

// TellGone tells the host that a process is gone, as an event that comes late does.
func (s *Server) TellGone(peer vmmc.ProcessID) {
	s.handleEvent(vmmc.Event{Kind: vmmc.PeerGone, Peer: peer})
}

// Seq is the number of the last request. No other call may be under way.
func (c *client) Seq() uint32 { return c.seq }

// ExhaustLease has the lease of a mutex that is free serve for n more locks.
func (m *Mutex) ExhaustLease(ctx context.Context, n uint64) error {
	v := m.lease | countMask - n<<tokenShift&countMask
	_, _, err := m.lane.CompareAndSwap64(ctx, leaseOff, m.lease, v)
	m.lease = v
	return err
}

// HasLease reports whether a mutex that is free can be locked without the host.
func (m *Mutex) HasLease() bool { return m.lease != 0 }

// Waiting is how many clients wait.
func (s *Server) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arbiter.waiters()
}

// Answer sends all clients an answer.
func (s *Server) Answer(seq uint32, value uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.lanes {
		s.answer(l, seq, value)
	}
}

// Process is the client's.
func (c *client) Process() *vmmc.Process { return c.p }

// SwapTwice is what a lock by the lease and its unlock do at least, on a word that is not used.
func (c *client) SwapTwice(ctx context.Context) error {
	if _, _, err := c.lane.CompareAndSwap64(ctx, 16, 0, 1); err != nil {
		return err
	}
	_, _, err := c.lane.CompareAndSwap64(ctx, 16, 1, 0)
	return err
}

// Settled reports whether the host knows all unlocks of a mutex.
func (s *Server) Settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.arbiter.(*mutexHost)
	return m.owner == nil || !m.recalled
}

package mpi

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/via"
)

// viaModule is the module via: packets are SENDs of package via. Each pair of ranks has one VI at each
// end, which is connected when the first packet is to be sent. So a job takes memory for the pairs that
// talk. What a rank exports for all others is its presence. Those that name the rank import it: its end
// tells of the rank's death before there is a connection.
type viaModule struct {
	e   *Engine
	own pair.Buffer // the presence
	key uint64

	bell  vmmc.Word
	heard atomic.Uint32 // the bell when Answer has looked. Stored under Engine.mu.

	nic      *via.NIC
	arrived  *via.CompletionQueue // of all receives
	listener *via.Listener

	byVI  sync.Map             // *viaPort by *via.VI
	ports map[int]*viaPort     // by rank. Guarded by Engine.mu.
	zones []*vmmc.Memory       // Guarded by Engine.mu.
	early map[int]*via.Request // of ranks that have no port here yet. Guarded by Engine.mu.

	ctx   context.Context //nolint:containedctx // ends with the module
	stop  context.CancelFunc
	tasks sync.WaitGroup
}

func newViaModule(e *Engine) *viaModule {
	m := &viaModule{e: e, ports: map[int]*viaPort{}, early: map[int]*via.Request{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Name is the module's.
func (m *viaModule) Name() string { return moduleNames[moduleVIA] }

func (m *viaModule) label() []byte {
	b := append(make([]byte, 0, 16), magic...)
	b = append(b, "via\x01"...)
	return binary.LittleEndian.AppendUint32(b, uint32(m.e.size))
}

// discriminator is what a rank listens for: the process, and the presence's number in it.
func discriminator(of vmmc.PID, id uint32) string { return fmt.Sprintf("mpi %d.%x", of, id) }

// Offer exports the presence, opens a NIC and listens for requests.
func (m *viaModule) Offer() (uint32, error) {
	if err := m.open(); err != nil {
		return 0, fmt.Errorf("module via: %w", err)
	}
	m.tasks.Go(m.accept)
	return m.own.ID(), nil
}

func (m *viaModule) open() (err error) {
	var b [8]byte
	_, _ = rand.Read(b[:])
	m.key = binary.LittleEndian.Uint64(b[:])
	m.own, err = pair.NewBuffer(m.e.p, presenceAt+m.e.size*presenceLen, func(b []byte) {
		copy(b, magic)
		binary.LittleEndian.PutUint32(b[8:], uint32(m.e.size))
		binary.LittleEndian.PutUint64(b[keyAt:], m.key)
	}, vmmc.WithLabel(m.label()))
	if err != nil {
		return err
	}
	if m.bell, err = m.own.Word(presenceBellAt); err != nil {
		return err
	}
	if m.nic, err = via.Open(m.e.p, "nic0"); err != nil {
		return err
	}
	m.nic.OnError(m.noteError)
	if m.arrived, err = m.nic.NewCompletionQueue(m.e.size * (prepost + spares)); err != nil {
		return err
	}
	m.listener, err = m.nic.Listen(m.ctx, discriminator(m.e.p.PID(), m.own.ID()))
	return err
}

// Connect makes the port of a rank. The presence of the rank is imported when that is first wanted, and
// the connection is made when a packet is to be sent.
func (m *viaModule) Connect(rank int, id uint32, to Sink) (Port, error) {
	p := &viaPort{m: m, rank: rank, id: id, to: to}
	var err error
	if p.refusal, err = m.own.Word(presenceAt + rank*presenceLen); err != nil {
		return nil, err
	}
	m.ports[rank] = p
	if r := m.early[rank]; r != nil {
		delete(m.early, rank)
		p.asked(r)
	}
	return p, nil
}

// Rung reports whether a rank has refused this one.
func (m *viaModule) Rung() bool { return m.bell.Load() != m.heard.Load() }

// Bell is the word that a rank writes when it refuses another one.
func (m *viaModule) Bell() vmmc.Watch { return vmmc.Watch{Word: m.bell, Old: m.heard.Load()} }

// Answer fails the ranks that have refused this one. Those that were met are left to Poll, which takes
// what they have sent before.
func (m *viaModule) Answer() {
	m.heard.Store(m.bell.Load())
	for rank, p := range m.ports {
		if p.im == nil && p.state != portEnded && p.refusal.Load() != 0 {
			m.e.peers[rank].fail(p.end(p.refusedBy()))
		}
	}
}

func (m *viaModule) hostOf(rank int) (via.HostAddress, error) {
	name, err := m.e.p.NodeToName(m.e.g.Node(rank))
	if err != nil {
		return via.HostAddress{}, err
	}
	return m.nic.HostByName(name, 0)
}

// credential is what a rank says of itself to one that has a key.
func credential(key uint64, rank int) string { return fmt.Sprintf("%016x.%d", key, rank) }

// accept answers the requests of other ranks.
func (m *viaModule) accept() {
	for {
		r, err := m.listener.Wait(m.ctx)
		if err != nil {
			return // the module ends
		}
		rank, ok := m.identify(r)
		if !ok {
			_ = r.Reject() // it was not answered before
			continue
		}
		m.e.mu.Lock()
		switch p := m.ports[rank]; {
		case p != nil:
			p.asked(r)
		case m.early[rank] == nil:
			m.early[rank] = r
		default:
			_ = r.Reject()
		}
		m.e.mu.Unlock()
	}
}

// identify is the rank that a request is of, if it knows this rank's key, and is where that rank is.
func (m *viaModule) identify(r *via.Request) (rank int, ok bool) {
	_, number, _ := strings.Cut(r.Remote.Discriminator, ".")
	rank, err := strconv.Atoi(number)
	if err != nil || rank < 0 || rank >= m.e.size || rank == m.e.rank || r.Remote.Discriminator != credential(m.key, rank) {
		return 0, false
	}
	host, err := m.hostOf(rank)
	return rank, err == nil && host == r.Remote.Host
}

// Step counts what has arrived.
func (m *viaModule) Step() {
	for {
		c, err := m.arrived.Done()
		if err != nil {
			return
		}
		m.count(c)
	}
}

// Await waits until something arrives.
func (m *viaModule) Await(ctx context.Context) error {
	c, err := m.arrived.Wait(ctx)
	if err == nil {
		m.count(c)
	}
	return err
}

func (m *viaModule) count(c via.Completion) {
	if p := m.portOf(c.VI); p != nil {
		p.completed.Add(1)
	}
}

func (m *viaModule) portOf(vi *via.VI) *viaPort {
	p, ok := m.byVI.Load(vi)
	if !ok {
		return nil
	}
	return p.(*viaPort) //nolint:forcetypeassert // byVI has no others
}

// noteError keeps why a connection is lost. The port finds out that it is by its receives.
func (m *viaModule) noteError(a via.AsyncError) {
	if p := m.portOf(a.VI); p != nil {
		p.cause.CompareAndSwap(nil, &a)
	}
}

// Close closes the NIC with all connections, and ends the presence.
func (m *viaModule) Close() error {
	m.stop()
	m.tasks.Wait()
	var err error
	if m.nic != nil {
		err = m.nic.Close() // no peer writes to a zone any more
	}
	for _, mem := range m.zones {
		err = errors.Join(err, mem.Close())
	}
	return errors.Join(err, m.own.Close())
}

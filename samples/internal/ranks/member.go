package ranks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
)

// Member is this process as a part of a run. It leads others, or follows the one
// that spawned it, or both, as the middle ones of the sample "spawn" do.
type Member struct {
	Process *vmmc.Process
	Ranks   []vmmc.ProcessID // by rank, the master first; set by Lead or Follow
	Rank    int

	ctx    context.Context
	cancel context.CancelCauseFunc

	failures []byte        // what the members of this one's run have to say, area by area
	quitting atomic.Bool   // the children were told to go: their end is no failure
	wake     chan struct{} // has room for one: a process has ended

	mu       sync.Mutex
	children []child                 // by rank, from 1 on
	gone     map[vmmc.ProcessID]bool // the processes that have ended

	parent vmmc.ProcessID // guarded by mu; zero if this member follows no parent
	toldTo *vmmc.Import   // where a failure is told
	area   int            // the rank in the parent's run, 0 until it is known
	done   atomic.Bool    // the result is given, only the dismissal is missing
}

// child is another member of the run that this one leads.
type child struct {
	id      vmmc.ProcessID
	control *vmmc.Import // nil until it is made
}

// Reasons why a run ends that are no failure of this process.
var (
	errDismissed  = errors.New("dismissed by the process that spawned this one")
	errParentGone = errors.New("the process that spawned this one has ended")
)

// Open joins the node and gives the context of the run, which ends with ctx, with
// the first failure of a member, or with the master.
func Open(ctx context.Context) (*Member, context.Context, error) {
	m := &Member{gone: map[vmmc.ProcessID]bool{}, wake: make(chan struct{}, 1)}
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	p, err := vmmc.Open(ctx, vmmc.WithEvents(m.event))
	if err != nil {
		m.cancel(err)
		return nil, nil, err
	}
	m.Process = p
	return m, m.ctx, nil
}

// Master reports whether this process leads the run in which it has its rank.
func (m *Member) Master() bool { return m.Rank == 0 }

// Name is how errors and tables speak of a rank.
func (m *Member) Name(rank int) string { return fmt.Sprintf("rank %d (%v)", rank, m.Ranks[rank]) }

// event is run when a process at the other end of a link has ended.
func (m *Member) event(e vmmc.Event) {
	if e.Kind != vmmc.PeerGone {
		return
	}
	m.mu.Lock()
	m.gone[e.Peer] = true
	parent := m.parent
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	if parent == e.Peer {
		m.cancel(errParentGone)
	}
	if m.quitting.Load() {
		return
	}
	for i, c := range m.led() {
		if c.id == e.Peer {
			m.cancel(fmt.Errorf("rank %d (%v) has ended before the run did: %w", i+1, c.id, e.Err))
		}
	}
}

// led is a copy of the children as they are now.
func (m *Member) led() []child {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.children)
}

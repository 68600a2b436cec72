package ranks

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc"
)

// Follow makes this process a member of the run of the process that spawned it,
// and waits for the table of ranks.
func (m *Member) Follow() error {
	parent, err := m.Process.Parent()
	if err != nil {
		return err
	}
	// First of all, so that the master's end is noticed from the import on.
	m.mu.Lock()
	m.parent = parent
	m.mu.Unlock()
	if m.toldTo, err = m.Process.Import(m.ctx, parent.Node, parent.PID, failureBuffer); err != nil {
		return err
	}
	mem, err := m.Process.Alloc(maxTable + vmmc.WordSize())
	if err != nil {
		return err
	}
	exp, err := m.Process.Export(controlBuffer, mem.Bytes(), vmmc.WithHandler(m.dismissed))
	if err != nil {
		return err
	}
	sealed, err := exp.Word(maxTable - vmmc.WordSize())
	if err != nil {
		return err
	}
	if _, err := sealed.Wait(m.ctx, 0); err != nil {
		return err
	}
	text, err := unseal(mem.Bytes()[:maxTable])
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &m.Ranks); err != nil {
		return fmt.Errorf("the table of ranks: %w", err)
	}
	if m.Rank = slices.Index(m.Ranks, m.Process.ID()); m.Rank < 1 {
		return fmt.Errorf("%v is not in the table of ranks %v", m.Process.ID(), m.Ranks)
	}
	m.area = m.Rank
	return nil
}

// dismissed is run when the master says that the run is over.
func (m *Member) dismissed(n vmmc.Notification) {
	if n.Offset == maxTable {
		m.cancel(errDismissed)
	}
}

// Report gives the master this member's result, which Gather takes, and returns
// when the master dismisses it.
func (m *Member) Report(result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	note := seal(text)
	mem, err := m.Process.Alloc(len(note))
	if err != nil {
		return err
	}
	copy(mem.Bytes(), note)
	m.done.Store(true)
	if _, err := m.Process.Export(resultBuffer, mem.Bytes(), vmmc.ReadOnly()); err != nil {
		return err
	}
	<-m.ctx.Done()
	return m.ctx.Err()
}

package ranks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// leaving bounds how long the members have to end when the run is over.
const leaving = 5 * time.Second

// End ends this process's part in the run, which had err, and gives the error that
// the program ends with.
func (m *Member) End(err error) error {
	if err != nil {
		err = m.explain(err)
	}
	if errors.Is(err, errDismissed) && m.done.Load() {
		err = nil
	}
	if err != nil && m.toldTo != nil && !errors.Is(err, errParentGone) &&
		!errors.Is(err, errDismissed) {
		m.tell(err)
	}
	if e := m.Dismiss(); err == nil {
		err = e
	}
	m.cancel(err)
	if e := m.Process.Close(); err == nil {
		err = e
	}
	return err
}

// Dismiss tells the members that this one leads to end, and waits until they have.
func (m *Member) Dismiss() error {
	if m.quitting.Swap(true) {
		return nil
	}
	// A context of its own: the run's may be over, and they must go all the same.
	ctx, stop := context.WithTimeout(context.Background(), leaving)
	defer stop()
	children := m.led()
	for _, c := range children {
		if c.control == nil {
			continue // it ends when it finds this process gone
		}
		// A child that cannot be told has ended already, or the wait below times out.
		_ = c.control.SendNotify(ctx, binary.LittleEndian.AppendUint32(nil, 1), maxTable)
	}
	for i, c := range children {
		if c.control == nil {
			continue
		}
		if err := m.awaitEnd(ctx, c); err != nil {
			return fmt.Errorf("rank %d (%v) does not end: %w", i+1, c.id, err)
		}
	}
	return nil
}

func (m *Member) awaitEnd(ctx context.Context, c child) error {
	for {
		m.mu.Lock()
		gone := m.gone[c.id]
		m.mu.Unlock()
		if gone {
			return nil
		}
		select {
		case <-m.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

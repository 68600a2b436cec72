package ranks

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/vmmc-go/vmmc"
)

// The buffers of a run.
const (
	failureBuffer = 1 // at the master: an area for each rank
	controlBuffer = 2 // at the others: the table of ranks, and the word of dismissal
	resultBuffer  = 3 // at the others, when they have a result
	// PairBuffer is the first id that is free for the program's own buffers.
	PairBuffer = 16
)

// Lead makes this process the master of n: it runs this program again with args,
// n-1 times, on the nodes of the session from its own on, and tells all of them
// their ranks.
func (m *Member) Lead(n int, args []string) error {
	hosts, err := m.Process.SessionHosts()
	if err != nil {
		return fmt.Errorf("the nodes of the session: %w", err)
	}
	if err := m.hearFailures(n); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program to spawn it: %w", err)
	}
	table := []vmmc.ProcessID{m.Process.ID()}
	for _, node := range Choose(hosts, m.Process.Node(), n)[1:] {
		pid, err := m.Process.Spawn(m.ctx, node, self, args...)
		if err != nil {
			return err
		}
		id := vmmc.ProcessID{Node: node, PID: pid}
		table = append(table, id)
		m.mu.Lock()
		m.children = append(m.children, child{id: id})
		m.mu.Unlock()
	}
	// Imported one by one, but they all start meanwhile.
	for i, id := range table[1:] {
		im, err := m.Process.Import(m.ctx, id.Node, id.PID, controlBuffer)
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.children[i].control = im
		m.mu.Unlock()
	}
	m.Ranks, m.Rank = table, 0
	return m.tellRanks(table)
}

func (m *Member) tellRanks(table []vmmc.ProcessID) error {
	text, err := json.Marshal(table)
	if err != nil {
		return err
	}
	note := seal(text)
	if len(note) > maxTable {
		return fmt.Errorf("the table of %d ranks has %d bytes, its place %d",
			len(table), len(note), maxTable)
	}
	for _, c := range m.led() {
		if err := c.control.Send(m.ctx, note, maxTable-len(note)); err != nil {
			return err
		}
	}
	return nil
}

// Gather takes the results of all others, by rank from 1 on.
func (m *Member) Gather(ctx context.Context) ([]json.RawMessage, error) {
	var out []json.RawMessage
	for _, c := range m.led() {
		// The import waits until there is a result.
		im, err := m.Process.Import(ctx, c.id.Node, c.id.PID, resultBuffer)
		if err != nil {
			return nil, err
		}
		b := make([]byte, im.Size())
		if err := im.Get(ctx, b, 0); err != nil {
			return nil, err
		}
		text, err := unseal(b)
		if err != nil {
			return nil, fmt.Errorf("the result of %v: %w", c.id, err)
		}
		out = append(out, text)
	}
	return out, nil
}

package mesh

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
)

// Mesh is a rank's buffers.
type Mesh struct {
	Rank    int
	Pairs   []*Pair // by the other's rank; nil at the own one
	Checked Count   // what this rank has received and found right

	seed  uint64
	epoch uint32 // of the barrier
}

// Count counts what was checked.
type Count struct {
	Messages uint64 `json:"messages"`
	Words    uint64 `json:"words"`
}

// Add adds what another rank has checked.
func (c *Count) Add(d Count) {
	c.Messages += d.Messages
	c.Words += d.Words
}

// Sub is what was checked since c was before.
func (c Count) Sub(before Count) Count {
	return Count{c.Messages - before.Messages, c.Words - before.Words}
}

// Open joins all ranks of a run. Each pair has that many bytes of memory for
// messages, which Lay divides.
func Open(ctx context.Context, m *ranks.Member, room int, seed uint64) (*Mesh, error) {
	h := &Mesh{Rank: m.Rank, Pairs: make([]*Pair, len(m.Ranks)), seed: seed}
	for r := range m.Ranks {
		if r == m.Rank {
			continue
		}
		p := &Pair{name: m.Name(r), last: h.key(r, m.Rank).base()}
		if err := p.export(m.Process, r, room); err != nil {
			return nil, err
		}
		h.Pairs[r] = p
	}
	for r, id := range m.Ranks {
		if r == m.Rank {
			continue
		}
		im, err := m.Process.Import(ctx, id.Node, id.PID, ranks.PairBuffer+uint32(m.Rank))
		if err != nil {
			return nil, err
		}
		if want := len(h.Pairs[r].mem); im.Size() != want {
			return nil, fmt.Errorf("the buffer of %s has %d bytes, this rank expected %d",
				m.Name(r), im.Size(), want)
		}
		h.Pairs[r].im = im
	}
	return h, nil
}

// Lay divides the memory of all pairs into places for messages of up to words words.
// All ranks must call it, and have received and freed whatever was sent before.
func (h *Mesh) Lay(ctx context.Context, words, places int) error {
	if err := h.Barrier(ctx); err != nil {
		return err
	}
	for _, p := range h.Pairs {
		if p != nil {
			if err := p.lay(ctx, stride(words), places); err != nil {
				return err
			}
		}
	}
	return h.Barrier(ctx)
}

// Places is how many messages of some words fit into memory of a size that is no
// burden, when each pair of a rank has that many: at least two, that the sender
// need not wait for each.
func Places(words, pairs, limit int) int {
	const memory = 16 << 20
	return max(2, min(limit, memory/(stride(words)*max(pairs, 1))))
}

// Room is the memory that these places take.
func Room(words, places int) int { return stride(words) * places }

// stride is the room for a message: whole cache lines.
func stride(words int) int { return (words*vmmc.WordSize() + line - 1) / line * line }

// Check checks a message of this rank's, which was sent to it as the i-th of a run.
func (h *Mesh) Check(from int, i uint32, message []byte) error {
	if err := h.key(from, h.Rank).at(i).check(message); err != nil {
		return fmt.Errorf("message %d from %s: %w", i, h.Pairs[from].name, err)
	}
	h.Checked.Messages++
	h.Checked.Words += uint64(len(message) / vmmc.WordSize())
	return nil
}

// Fill makes the i-th message of a run, from this rank to another.
func (h *Mesh) Fill(to int, i uint32, message []byte) { h.key(h.Rank, to).at(i).fill(message) }

// String is how programs end their tables.
func (c Count) String() string {
	return fmt.Sprintf("%d words in %d messages, all as they were sent", c.Words, c.Messages)
}

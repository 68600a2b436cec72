package curve

import (
	"context"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
)

// side is one of the two ranks.
type side struct {
	mesh   *mesh.Mesh
	pair   *mesh.Pair
	other  int
	memory []byte // what this side sends or fetches in a burst, message after message
	next   uint32 // the number of the next message
	bytes  int    // of a message
	n      int    // messages in the burst
}

func newSide(h *mesh.Mesh) *side {
	s := &side{mesh: h, other: 1 - h.Rank}
	s.pair = h.Pairs[s.other]
	return s
}

// message is the i-th of the burst.
func (s *side) message(i int) []byte { return s.memory[i*s.bytes:][:s.bytes] }

// burst moves n messages and gives the time that took.
func (s *side) burst(ctx context.Context, k Kind, n int) (time.Duration, error) {
	s.n = n
	k.prepare(s)
	if err := s.mesh.Barrier(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := k.move(ctx, s); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if err := k.check(ctx, s); err != nil {
		return 0, err
	}
	s.next += uint32(n)
	return took, nil
}

// size moves iterations messages of some words, in bursts of at most places, after
// one that warms up.
func (s *side) size(
	ctx context.Context, k Kind, words, iterations, places int,
) (took time.Duration, err error) {
	s.bytes = words * vmmc.WordSize()
	if err := s.mesh.Lay(ctx, words, places); err != nil {
		return 0, err
	}
	if _, err := s.burst(ctx, k, min(iterations, places)); err != nil {
		return 0, err
	}
	s.mesh.Checked = mesh.Count{}
	for left := iterations; left > 0; {
		n := min(left, places)
		t, err := s.burst(ctx, k, n)
		if err != nil {
			return 0, err
		}
		took += t
		left -= n
	}
	return took, nil
}

// fill makes the messages of this side's burst.
func (s *side) fill() {
	for i := range s.n {
		s.mesh.Fill(s.other, s.next+uint32(i), s.message(i))
	}
}

// send sends them, all or one by one.
func (s *side) send(ctx context.Context, i int) error { return s.pair.Send(ctx, s.message(i)) }

func (s *side) sendAll(ctx context.Context) error {
	for i := range s.n {
		if err := s.send(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) receiveAll(ctx context.Context) error {
	for range s.n {
		if _, err := s.pair.Receive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkAll checks what was received in the burst, and gives its places back.
func (s *side) checkAll(ctx context.Context) error {
	for i := range s.n {
		place := s.pair.Received(s.n - 1 - i)
		if err := s.mesh.Check(s.other, s.next+uint32(i), place[len(place)-s.bytes:]); err != nil {
			return err
		}
	}
	return s.pair.Free(ctx)
}

package curve

import "context"

// Kind is what the two ranks do to each other.
type Kind struct {
	// Ways is how many messages an iteration moves.
	Ways int

	prepare func(*side)
	move    func(context.Context, *side) error
	check   func(context.Context, *side) error
}

// PingPong is a message there, then one back.
var PingPong = Kind{
	Ways:    2,
	prepare: (*side).fill,
	move: func(ctx context.Context, s *side) error {
		for i := range s.n {
			if s.mesh.Rank == 0 {
				if err := s.send(ctx, i); err != nil {
					return err
				}
			}
			if _, err := s.pair.Receive(ctx); err != nil {
				return err
			}
			if s.mesh.Rank == 1 {
				if err := s.send(ctx, i); err != nil {
					return err
				}
			}
		}
		return nil
	},
	check: func(ctx context.Context, s *side) error { return s.checkAll(ctx) },
}

// Oneway is rank 0 sending without a pause, until rank 1 says that all has arrived.
var Oneway = Kind{
	Ways: 1,
	prepare: func(s *side) {
		if s.mesh.Rank == 0 {
			s.fill()
		}
	},
	move: func(ctx context.Context, s *side) error {
		if s.mesh.Rank == 0 {
			if err := s.sendAll(ctx); err != nil {
				return err
			}
			return s.pair.AwaitConfirm(ctx)
		}
		if err := s.receiveAll(ctx); err != nil {
			return err
		}
		return s.pair.Confirm(ctx)
	},
	check: func(ctx context.Context, s *side) error {
		if s.mesh.Rank == 0 {
			return nil
		}
		return s.checkAll(ctx)
	},
}

// Bidir is both sending at the same time, until all has arrived at both.
var Bidir = Kind{
	Ways:    2,
	prepare: (*side).fill,
	move: func(ctx context.Context, s *side) error {
		if err := s.sendAll(ctx); err != nil {
			return err
		}
		if err := s.receiveAll(ctx); err != nil {
			return err
		}
		if err := s.pair.Confirm(ctx); err != nil {
			return err
		}
		return s.pair.AwaitConfirm(ctx)
	},
	check: func(ctx context.Context, s *side) error { return s.checkAll(ctx) },
}

// Fetch is rank 0 reading from the memory of rank 1, which does nothing meanwhile.
var Fetch = Kind{
	Ways: 1,
	prepare: func(s *side) {
		if s.mesh.Rank == 0 {
			return
		}
		for i := range s.n {
			place := s.pair.Own(i)
			s.mesh.Fill(s.other, s.next+uint32(i), place[len(place)-s.bytes:])
		}
	},
	move: func(ctx context.Context, s *side) error {
		if s.mesh.Rank == 1 {
			return nil
		}
		for i := range s.n {
			if err := s.pair.Fetch(ctx, i, s.message(i)); err != nil {
				return err
			}
		}
		return nil
	},
	check: func(ctx context.Context, s *side) error {
		if s.mesh.Rank == 0 {
			for i := range s.n {
				if err := s.mesh.Check(s.other, s.next+uint32(i), s.message(i)); err != nil {
					return err
				}
			}
		}
		// Before this rank 1 must not change what rank 0 may be fetching.
		return s.mesh.Barrier(ctx)
	},
}

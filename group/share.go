package group

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/view"
)

// firstShare is the id of the first Share's buffers, which all members have alike. internal/pair takes
// none of the 2^20 from there on.
const firstShare = 0xE0000000

// Shared is memory that each member has a part of.
//
// Experimental: it may change in any release.
type Shared[T any] struct {
	g     *Group
	local *view.Local[T]

	mu     sync.Mutex
	of     map[int]*view.Remote[T] // Guarded by mu.
	closed bool                    // Guarded by mu.
}

// Share allocates n elements at this member and exports them to the others, as [view.Export] does.
// It is a collective: when it returns, all members have exported theirs. n may differ.
//
// Errors: those of [view.Export], where the other members wait until this one calls Share again;
// those of [Group.Barrier].
//
// Experimental: it may change in any release.
func Share[T any](ctx context.Context, g *Group, n int, opts ...vmmc.ExportOption) (*Shared[T], error) {
	const op = "share"
	if err := g.enter(ctx, op, shareKind); err != nil {
		return nil, err
	}
	defer g.busy.Unlock()
	local, ok := g.sharing.(*view.Local[T])
	switch {
	case g.sharing == nil:
		var err error
		if local, err = view.Export[T](g.p, firstShare+g.shares, n, opts...); err != nil {
			return nil, err
		}
		g.sharing, g.unshare = local, local.Close
		g.step("shared")
	case !ok || local.Len() != n:
		return nil, fail(op, vmmc.ErrInProgress, "another Share was interrupted: call that again first")
	}
	if err := g.collective(ctx, op, shareKind, nil); err != nil {
		if errors.As(err, new(MemberGoneError)) {
			g.sharing, g.unshare = nil, nil
			err = errors.Join(err, local.Close())
		}
		return nil, err
	}
	g.sharing, g.unshare = nil, nil
	g.shares++
	return &Shared[T]{g: g, local: local, of: map[int]*view.Remote[T]{}}, nil
}

// Local is this member's part, which the others change at any time. It must not be touched after
// [Shared.Close].
func (s *Shared[T]) Local() []T { return s.local.Slice() }

// Of is the part of a member, also of this one. It is imported at the first call. Errors: those of
// [Group.Import]; [view.ErrLayout] if the member has elements of another layout.
func (s *Shared[T]) Of(ctx context.Context, rank int) (*view.Remote[T], error) {
	if r, err := s.known(rank, nil); r != nil || err != nil {
		return r, err
	}
	im, err := s.g.Import(ctx, rank, s.local.Export().ID())
	if err != nil {
		return nil, err
	}
	r, err := view.RemoteOf[T](im)
	if err != nil {
		return nil, errors.Join(err, im.Close())
	}
	first, err := s.known(rank, r)
	if first != r {
		err = errors.Join(err, r.Close())
	}
	return first, err
}

// known is the part that was imported first, or r.
func (s *Shared[T]) known(rank int, r *view.Remote[T]) (*view.Remote[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, fail(fmt.Sprintf("part of member %d", rank), vmmc.ErrClosed, "the shared memory is closed")
	case s.of[rank] == nil && r != nil:
		s.of[rank] = r
	}
	return s.of[rank], nil
}

// Close ends this member's imports of the others' parts, and its own part. It is no collective: a
// barrier before it lets the others end their use. After an error call it again.
func (s *Shared[T]) Close() (err error) {
	s.mu.Lock()
	s.closed = true
	of := s.of
	s.mu.Unlock()
	for _, r := range of {
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		return err
	}
	return s.local.Close()
}

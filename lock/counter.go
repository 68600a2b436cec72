package lock

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Counter is a number of 64 bits that any process adds to. It has no holders, and keeps what dead
// processes have added.
//
// Experimental: it may change in any release.
type Counter struct {
	name string
	im   *vmmc.Import
}

// HostCounter makes a counter that begins with a number and publishes it under a name, see [Host];
// [OpenCounter] finds it there. Any process that may open it may also store anything in it.
// [MaxClients] and [After] are refused.
//
// Experimental: it may change in any release.
func HostCounter(
	ctx context.Context, p *vmmc.Process, name string, begin uint64, opts ...Option,
) (*Server, error) {
	op := fmt.Sprintf("host %s %q", kindCounter, name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	s := &Server{p: p, name: name, kind: kindCounter, opts: defaults}
	if err := s.opts.apply(op, kindCounter, opts); err != nil {
		return nil, err
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.unsubscribe = func() {}
	s.listener = pair.NewListener(p, s.accept)
	fill := func(b []byte) {
		writeLetterbox(b, kindCounter)
		binary.NativeEndian.PutUint64(b[countOff:], begin)
	}
	export := slices.Concat(s.opts.permit, s.opts.export)
	var err error
	if s.letterbox, err = pair.NewBuffer(p, letterboxSize, fill, export...); err != nil {
		s.end()
		return nil, err
	}
	return s.publish(ctx)
}

// OpenCounter opens the counter that is hosted under a name. Errors as [Open].
//
// Experimental: it may change in any release.
func OpenCounter(ctx context.Context, p *vmmc.Process, name string) (*Counter, error) {
	op := fmt.Sprintf("open %s %q", kindCounter, name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	im, err := p.ImportName(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := checkLetterbox(ctx, im, kindCounter); err != nil {
		_ = im.Close()
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return &Counter{name, im}, nil
}

// Add adds delta, and returns the sum. It adds once: after an error that is also
// [vmmc.ErrOutcomeUnknown] it may have added, which [vmmc.OutcomeOf] finds out. Errors:
// [vmmc.ErrTimeout], [vmmc.ErrCanceled], [vmmc.ErrPeerGone], [vmmc.ErrRevoked], [vmmc.ErrClosed].
//
// Experimental: it may change in any release.
func (c *Counter) Add(ctx context.Context, delta uint64) (uint64, error) {
	old, err := c.im.FetchAdd64(ctx, countOff, delta)
	if err != nil {
		return 0, fmt.Errorf("add to counter %q: %w", c.name, err)
	}
	return old + delta, nil
}

// Load returns the number. Errors as [Counter.Add].
//
// Experimental: it may change in any release.
func (c *Counter) Load(ctx context.Context) (uint64, error) {
	return c.Add(ctx, 0) // a get might tear it
}

// Close leaves the counter. Errors: those of [vmmc.Import.Close].
//
// Experimental: it may change in any release.
func (c *Counter) Close() error { return c.im.Close() }

package channel

import (
	"context"
	"errors"
	"iter"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/queue"
)

// Option changes what [Make] does.
//
// Experimental: it may change in any release.
type Option func(*options)

type options struct {
	senders int
	queue   []queue.Option
}

// Senders is how many senders the channel has in all; without it that is one. It is closed when all
// of them are.
//
// Experimental: it may change in any release.
func Senders(n int) Option { return func(o *options) { o.senders = n } }

// Buffer is for how many values each sender has room; without it that is 1,024. It is rounded up to
// a power of two, see [queue.Slots].
//
// Experimental: it may change in any release.
func Buffer(n int) Option {
	return func(o *options) { o.queue = append(o.queue, queue.Slots(n)) }
}

// Permit lets exactly the processes dial that match one of perms, see [queue.Permit].
//
// Experimental: it may change in any release.
func Permit(perms ...vmmc.Permission) Option {
	return func(o *options) { o.queue = append(o.queue, queue.Permit(perms...)) }
}

// LostError says that a sender has ended without a Close that succeeded. Its Producer is the
// sender, and Values is how many of its values were received.
//
// Experimental: it may change in any release.
type LostError = queue.LostError

// Chan is a channel, at its receiver. Its methods may be called concurrently.
//
// Experimental: it may change in any release.
type Chan[T any] struct{ q *queue.Consumer[T] }

// Make makes a channel and publishes it under a name, see [vmmc.Export.PublishAs]. This process is
// its receiver. Errors as [queue.Listen].
//
// Experimental: it may change in any release.
func Make[T any](
	ctx context.Context, p *vmmc.Process, name string, opts ...Option,
) (*Chan[T], error) {
	o := options{senders: 1}
	for _, opt := range opts {
		if opt == nil {
			return nil, &vmmc.Error{
				Op: "make channel " + name, Code: vmmc.ErrBadArg, Err: errors.New("an option is nil"),
			}
		}
		opt(&o)
	}
	q, err := queue.Listen[T](ctx, p, name, append(o.queue, queue.Producers(o.senders))...)
	if err != nil {
		return nil, err
	}
	return &Chan[T]{q}, nil
}

// Recv receives a value, and waits while there is none, also while no sender has dialled. Once the
// channel is closed and all values are received, ok is false and err is nil. Errors, with ok false:
// a [*LostError] for a sender that has ended without a close; [vmmc.ErrTimeout] and
// [vmmc.ErrCanceled] when the context ends; [vmmc.ErrClosed], [vmmc.ErrNotInHandler]. After an
// error no value was taken.
//
// Experimental: it may change in any release.
func (c *Chan[T]) Recv(ctx context.Context) (v T, ok bool, err error) {
	v, err = c.q.Get(ctx)
	switch {
	case errors.Is(err, queue.ErrEnd):
		return v, false, nil
	case err != nil:
		return v, false, err
	}
	return v, true, nil
}

// All receives all values. It ends when the channel is closed and all are received, or when the
// loop is left; otherwise its last pair is the error, as of [Chan.Recv]. After a [*LostError]
// another All goes on with the other senders' values.
//
// Experimental: it may change in any release.
func (c *Chan[T]) All(ctx context.Context) iter.Seq2[T, error] { return c.q.All(ctx) }

// Replace lets another sender dial in place of one that was lost, of which Recv has told: one that
// was started again, for example. The channel is then closed as if the lost one had never been. It
// reports whether it did, see [queue.Consumer.Replace].
//
// Experimental: it may change in any release.
func (c *Chan[T]) Replace(lost *LostError) bool { return c.q.Replace(lost) }

// Close ends the channel at the receiver: values that were not received are lost, and calls of the
// senders fail with [vmmc.ErrRevoked]. It gives back the channel's memory and its name, so call it
// also after the senders have closed it. Errors as [queue.Consumer.Close].
//
// Experimental: it may change in any release.
func (c *Chan[T]) Close() error { return c.q.Close() }

// Sender sends on a channel. Its methods may be called concurrently.
//
// Experimental: it may change in any release.
type Sender[T any] struct{ q *queue.Producer[T] }

// Dial makes a sender of the channel that is published under a name, and waits for the name as long
// as the context allows. Errors as [queue.Dial]; [vmmc.ErrNoMem] if the channel has had all its
// senders.
//
// Experimental: it may change in any release.
func Dial[T any](ctx context.Context, p *vmmc.Process, name string) (*Sender[T], error) {
	q, err := queue.Dial[T](ctx, p, name)
	if err != nil {
		return nil, err
	}
	return &Sender[T]{q}, nil
}

// Send sends v, and waits while the buffer is full. Errors as [queue.Producer.Put].
//
// Experimental: it may change in any release.
func (s *Sender[T]) Send(ctx context.Context, v T) error { return s.q.Put(ctx, v) }

// Close says that this sender sends no more values, and returns when all are received. It ends the
// sender in any case: after an error values may be lost, and the receiver knows it, unless it has
// got them all. Errors as [queue.Producer.Close]. A second call does nothing.
//
// Experimental: it may change in any release.
func (s *Sender[T]) Close(ctx context.Context) error { return s.q.Close(ctx) }

// Pending is how many values are not known to be received, see [queue.Producer.Pending].
//
// Experimental: it may change in any release.
func (s *Sender[T]) Pending() int { return s.q.Pending() }

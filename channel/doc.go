// Package channel has channels of values between processes, with the senders on any node that the
// channel's name reaches. They are closed as Go's are: the receiver gets all values, and then ok is
// false. A sender that dies is no close: the receiver gets an error that names it.
//
//	c, err := channel.Make[Job](ctx, p, "jobs") // the receiver
//	for job, err := range c.All(ctx) {
//		...
//	}
//
//	s, err := channel.Dial[Job](ctx, p, "jobs") // the sender
//	err = s.Send(ctx, Job{ID: 7})
//	err = s.Close(ctx) // no value follows; returns when all are received
//
// # Compared with Go's
//
// A channel has one receiver, whose process has its buffer, and one sender, or as many as [Senders]
// says. Each sender closes its own end, once, and the channel is closed when all have. So no sender
// closes what others still send on. No more senders may dial than those, also after some have been
// closed.
//
// The channel is buffered ([Buffer], for each sender): Send returns when the value has left, not
// when it was received, and waits while the buffer is full. The values of each sender are received
// in the order in which they were sent, each whole, none twice; among senders there is no order.
//
// The receiver may end the channel, too ([Chan.Close]): then sends fail with [vmmc.ErrRevoked]. A
// send on a closed sender is an error, [vmmc.ErrClosed], and no panic.
//
// # When a process ends
//
// A sender that ends without a Close that succeeds is lost: its process has died or left, the link
// with it was lost, or its Close was given up. The receiver gets the values that had arrived, from
// the first one on without a gap, then once a [*LostError], which is [vmmc.ErrPeerGone], and then
// the others' values. When all senders have ended, Recv returns the first LostError again: a
// channel that has lost a sender is never closed, unless the receiver lets another one take its
// place ([Chan.Replace]).
//
// If the receiver dies, sends and closes fail with [vmmc.ErrPeerGone]. No call waits longer than
// its context, nor for a process that has ended. A process that is stopped loses and repeats
// nothing when it goes on.
//
// # Use
//
// A channel is a queue of package queue that ends ([queue.Producers]), and its errors speak of that
// queue; a sender may also be a queue's producer. What that package says of values, memory,
// handlers and allocations holds here. For batches and polling use a queue.
//
// Experimental: this package may change in any release.
package channel

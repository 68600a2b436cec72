// Package queue has bounded queues of values between processes: one consumer, and any number of
// producers on any node that its name reaches. The consumer may share the values among other
// processes.
//
//	q, err := queue.Listen[Job](ctx, p, "jobs") // the consumer
//	for job, err := range q.All(ctx) {
//		...
//	}
//
//	q, err := queue.Dial[Job](ctx, p, "jobs") // a producer
//	err = q.Put(ctx, Job{ID: 7})
//	err = q.Close(ctx) // returns when all values are taken
//
// # Values
//
// The values are of a type that package view accepts: fixed sizes, no pointers, no unnamed padding
// ([view.TypeError]). A producer whose program has another definition of the type is refused by
// Dial with a [view.LayoutError], which names the field.
//
// A queue of records has byte slices instead, of any length up to a bound: [ListenBytes] and
// [DialBytes]. All that is said of values here holds for records, too.
//
// # Guarantees
//
// The consumer gets the values of each producer in the order in which they were put, each whole,
// none twice. Among producers there is no order. No producer starves: the consumer takes from them
// in turn.
//
// The queue is bounded. Each producer has room for a number of values of its own ([Slots]). When
// that is used up, Put waits until the consumer has taken some: a quarter of the slots, or all that
// are there.
//
// No call waits longer than its context, nor for a process that has ended. If a producer dies, the
// consumer gets the values that had arrived, from the first one on without a gap, and then the
// others' alone. A producer that leaves without a [Producer.Close] that succeeds may lose the last
// values that it has put. If the consumer dies, calls of the producers return [vmmc.ErrPeerGone],
// and if it is closed [vmmc.ErrRevoked]. What was not taken is lost: [Producer.Pending] says how
// many values are not known to be taken, and the last of those that were put are among them. A
// process that is stopped holds up its own queue alone; when it goes on, nothing is lost or
// repeated.
//
// A link between nodes that is lost, and not resumed within the time of [vmmc.WithResume], ends the
// queue for that producer as death does.
//
// # The end
//
// A queue goes on until its consumer closes it. One for a number of producers ([Producers]) ends
// when all of them have been closed: gets return [ErrEnd] when all values are taken. A producer
// that has ended without a Close that succeeds is never taken for one that was closed: a get
// returns a [*LostError], which names it.
//
// # Several consumers
//
// A consumer may share its queue: [Share] lets any process that a second name reaches take values,
// by [DialTaker] and [Taker.Take]. A value goes to the taker that asks first. It is unfinished from
// then on until that taker takes the next one or calls [Taker.Finish].
//
//	s, err := queue.Share(ctx, q, "workers") // the consumer
//
//	k, err := queue.DialTaker[Job](ctx, p, "workers") // a taker
//	for job, err := range k.All(ctx) {
//		...
//	}
//
// Each value is finished by one taker at most. While takers live, each value is taken by one of them.
// When a taker ends, by its death, [Taker.Close], or the loss of its link, the values that it has not
// finished go to other takers, before all others. [Taken.Attempt] says how many takers have had the
// value. So a value that a taker was working on when it died is worked on again: a program whose
// work must not be repeated compares a number in the value with what was done, as after any crash.
// A taker that has lost its link and lives takes its unfinished values for those of another one.
//
// A take that fails has taken no value. A taker that is stopped holds up what it has taken and
// nothing else. The queue ends for takers ([ErrEnd]) when it has ended and all values are finished.
// A taker gets the values of each producer in their order, except for those that come back.
//
// The process that shares the queue may take values itself, by gets. One that waits holds up the
// takers until it returns, as takes that wait hold up the gets. When it ends the sharing
// ([Shared.Close]), the values that no taker has finished are the consumer's again: gets and the
// takers of a later sharing get them before all others. Attempt counts on there, and a get does not
// tell it.
//
// The values go through the process that shares the queue. If it dies, takes return
// [vmmc.ErrPeerGone], and values that were put and not finished are lost, as those of a consumer.
//
// # Memory
//
// Values lie in the consumer's memory. Each producer costs it as many slots as [Slots] says, each
// of the size of a value and 4 bytes, from the beginning, until the producer has ended and its
// values are taken. [MaxProducers] bounds how many there are, and [Permit] which
// processes may be producers at all: without it, all that may import from the consumer.
//
// # Use
//
// All methods may be called concurrently; puts of one producer, and gets, happen one at a time.
// None but Pending may be called in a notification handler. On one node Put, PutAll, Get and
// GetSome allocate nothing, except for a get that waits with another context than the last one that
// waited. A program that blocks its notifications ([vmmc.Process.BlockNotifications]) holds up new
// producers.
//
// Experimental: this package may change in any release.
package queue

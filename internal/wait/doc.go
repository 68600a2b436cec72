// Package wait is how a goroutine waits for a word in memory: it polls, yields, and at last sleeps
// until the side that stores the word wakes it. The caller polls, because it has more to do between
// polls (its sockets). This package decides when to stop polling, and sleeps.
//
// Sleeping is a count in the process page. A sleeper raises it and then looks once more. The side
// that delivers stores the word and then loads the count. Both are sequentially consistent, so one
// of them sees the other (docs/models/sleep.pml).
//
// A thread that shares its processor with the other end leaves it
// (docs/decisions/0016-a-shared-processor.md). Every 16,384 polls, over all waits, and every 4,096
// waits that begin with plain polls of memory, Go's runtime is told of the process's polling: its
// monitor sleeps while it knows of no running goroutine, and with one processor a poller would keep
// all others from the network.
package wait

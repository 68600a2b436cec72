// Package lock has locks among processes of any nodes, whose holders may die; also semaphores,
// counters, and functions that run once. A lock lies in the
// memory of one process, its host, and is opened by its name.
//
//	s, err := lock.Host(ctx, p, "ledger") // the host
//
//	m, err := lock.Open(ctx, p, "ledger") // any process
//	h, err := m.Lock(ctx)
//	if h.Abandoned() { // an earlier holder died
//		repair()
//		h.Repaired()
//	}
//	change(h.Token())
//	err = h.Unlock(ctx)
//
// # Guarantees
//
// One process has the lock at a time, and one goroutine of it. A holder that dies, or whose link
// with the host fails, loses the lock when all that it sent to the host's process has arrived
// ([vmmc.PeerGone]); only then the next one gets it, and knows ([Held.Abandoned]). So what lies in
// the host's process needs no other care. What lies elsewhere may get data of a dead holder later:
// let it compare tokens ([Held.Token]). No clock takes a lock away: a holder that is stopped keeps
// it, also for ever.
//
// Unlock returns when all that the process has sent has arrived, so the next holder finds it.
//
// Waiters get the lock in the order in which their requests arrive at the host. The goroutines that
// share a [Mutex] count as one of them, and take turns in their own order. A call whose context has
// ended waits no more; a lock that was granted to it meanwhile goes to the next one.
//
// No call waits longer than its context, nor for a host that has ended. If the host dies, the lock
// is gone: calls return [vmmc.ErrPeerGone], or [vmmc.ErrRevoked] if it was closed, and [Held.Lost]
// is closed. A new host under the name is another lock, and does not know of the old one's holder:
// [After] continues the tokens and marks the lock as abandoned. A link between nodes that is lost,
// and not resumed within the time of [vmmc.WithResume], ends the lock for that client as death does.
//
// A client can write to two things of the host's: to its lane, which no other client can reach, and
// as any process that may open the lock, to the letterbox, which only Open reads. Whatever it stores
// there and notifies the host of, it cannot have the lock beside another one, nor take it away. But
// it can keep the lock, mark it as abandoned, and keep others from opening it later ([Permit]).
//
// A [Semaphore] has several permits instead, a [Once] has one process run a function, and a
// [Counter] is a number. Each has a name and a host of its own, and what is said above of waits,
// of hosts and clients that die, and of false clients is so for these, too; but any process that
// may open a counter can store anything in it.
//
// # Cost
//
// A client that has had the lock keeps a lease while no other one wants it. With a lease Lock is
// one compare-and-swap in the host's memory, and Unlock is a [vmmc.Process.Fence] and another one: no
// code of the host runs, and on one node nothing is allocated as long as the caller keeps the Held
// on its stack. Without a lease Lock is a notification to the host and its answer, and while others
// wait Unlock is a notification. So a lock that many processes want by turns needs the host's
// program to run, and its handlers not to be blocked ([vmmc.Process.BlockNotifications]) or busy.
//
// # Use
//
// All methods may be called concurrently. None that takes a context may be called in a notification
// handler. A program may host several locks, under several names, and open its own.
//
// Experimental: this package may change in any release.
package lock

// Where to change what:
//
//   - layout and operations: lock.go
//   - which client gets the lock: mutexHost in host_mutex.go, called by lane.handle in host.go
//   - a client's side: client.go, and Lock and Unlock in mutex.go
//   - semaphores, counters, functions that run once: host_others.go, and semaphore.go, counter.go,
//     once.go
//
// The model is docs/models/lock.pml.

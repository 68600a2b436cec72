// Package call has calls between processes: one server, which runs a function, and any number of
// clients on any node that its name reaches. Requests and answers are Go values, without an
// interface definition.
//
//	s, err := call.Serve(ctx, p, "oracle", func(ctx context.Context, q *Question, a *Answer) error {
//		a.Number = 2 * q.Number
//		return nil
//	})
//
//	c, err := call.Dial[Question, Answer](ctx, p, "oracle") // in another process
//	err = c.Call(ctx, &q, &a)
//
// # Values
//
// Requests and answers are of types that package view accepts: fixed sizes, no pointers, no unnamed
// padding ([view.TypeError]). A client whose program has another definition of one of them is
// refused by Dial with a [view.LayoutError], which names the field.
//
// # Guarantees
//
// Each request runs at most once. A call that returns nil, or a [RemoteError], has run exactly
// once. After another error it has not run, unless the error is also [vmmc.ErrOutcomeUnknown]: then
// it has run, or runs, or will run, or will never.
//
// No call waits longer than its context, nor for a server that has ended: the error is
// [vmmc.ErrPeerGone] if it is gone, and [vmmc.ErrRevoked] if it was closed. A client that has lost
// its server does not find another one: dial again.
//
// A call that was given up keeps its slot until its answer has come. So a late answer is in no
// other call, and a server that does not answer any more uses up the client's slots ([Slots]):
// calls then wait for a slot. Giving a call up does not stop its handler, and no deadline goes to
// the server.
//
// A handler that takes long delays other calls by a few milliseconds at most, as long as fewer than
// [Handlers] run. No client starves: the server takes requests from the clients in turn. A client
// that is stopped, or whose link is away, delays no other one.
//
// A link between nodes that is lost, and not resumed within the time of [vmmc.WithResume], ends the
// client as the server's death does.
//
// # Handlers
//
// A handler gets a zeroed answer to fill in. Both values are the server's again when it returns.
// Its context ends when its client is gone, and when the server is closed ([Server.Close]). All calls
// of a client have the same context, so a server may keep by it what it has of the client.
// [Caller] says which process calls. An error that it returns reaches the client as a
// [RemoteError], with the first 1,000 bytes of its text.
//
// A handler that panics does not end the program: one request must not end the calls of all other
// clients. As package net/http does, the server logs the panic with its stack ([Logger]). Unlike
// there, the connection stays, and the client gets a RemoteError which says that the handler has
// panicked, without what it has panicked with. A program that prefers to end recovers in its
// handler and exits.
//
// # Memory
//
// A call under way has a slot of a request's size in the server's memory, and one of an answer's
// size, and 1 KiB at least, in the client's. [Slots] says how many a client has, [MaxSlots] and
// [MaxClients] bound what clients may cost the server, and [Permit] which processes may be clients
// at all: without it, all that may import from the server.
//
// # Use
//
// All methods may be called concurrently, in handlers of calls too. None may be called in a
// notification handler. On one node Call allocates nothing, nor does the server. A program that
// blocks its notifications ([vmmc.Process.BlockNotifications]) holds up new clients.
//
// While the server sleeps, each message to its process wakes it. A process that is client and
// server, and whose calls must be as fast as can be, has a [vmmc.Process] for each.
//
// Experimental: this package may change in any release.
package call

// Where to change what:
//
//   - the layout of slots: call.go
//   - a call and its slot: client.call in client.go
//   - connections, and how requests are taken: server.go
//   - workers, and which of them waits: worker.go
//
// The model is docs/models/call.pml.

// Package mpi is the engine of MPI: requests, match queues, the eager and rendezvous protocols with
// credits, and the modules that carry packets between ranks. All calls may be made from any
// goroutine.
//
// Where to change what:
//
//   - layouts of blocks, packets and queues: layout.go
//   - which message a receive takes: queues.go, and Engine.startRecv in receive.go
//   - what is sent when there is room, and in which order: peer.pump in send.go
//   - what a module is: module.go; rings of packets, which modules shm and tcp are, and when these
//     connect: ring.go
//   - how ranks learn of a death: Engine.noteDeath and Engine.failEnded in engine.go
//   - module via, and requests of other ranks: via.go; credit, and when ranks connect: via_port.go
//   - how a waiter polls and sleeps: request.go; progress while none polls: engine.go
//
// docs/decisions/0031-mpi.md says why.
package mpi

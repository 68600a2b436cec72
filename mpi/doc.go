// Package mpi is MPI for Go programs, on remote memory. It needs no C.
//
//	world, err := mpi.Init(ctx)                                   // one of the ranks of vmmc run -n
//	err = mpi.Send(ctx, world, values, dest, tag)                 // values is a slice
//	st, err := mpi.Recv(ctx, world, values, mpi.AnySource, tag)
//	err = mpi.Allreduce(ctx, world, mine, sums, mpi.Sum[float64]())
//	err = world.Finalize(ctx)
//
// A program is started on all ranks by "vmmc run -n". A program that was started otherwise is one
// rank.
//
// All calls may be made from any goroutine, as with MPI_THREAD_MULTIPLE. Calls that may wait take a
// context. Errors are values: errors.Is finds their class, and their text names the MPI call and the
// argument. When a rank ends without Finalize, the others end too, unless [WithFailed] says otherwise.
//
// Ranks of one node exchange messages in memory that both map (module shm), others over a connection
// (module tcp). Messages of up to 8 KiB leave at once, while the receiver has memory for them;
// others wait for their receive.
//
// Experimental: this package may change in any release.
package mpi

// Where to change what:
//
//   - point-to-point calls: p2p.go; what they check: Comm.target and Comm.source in comm.go
//   - communicators: comm.go; intercommunicators: inter.go
//   - attributes, names, the end of communicators: attribute.go
//   - error handlers: errhandler.go
//   - survivors of a failure: fault.go; their agreement: fault_agree.go
//   - how a collective runs: plan in collective.go; which algorithm one uses: reduce.go, gather.go;
//     trees, and which ranks share a node: tree.go; operations: op.go
//   - requests of collectives: nonblocking.go; persistent requests: persistent.go
//   - derived datatypes, and packing: datatype.go; messages of them: datatype_send.go
//   - windows: window.go; accumulates: window_accumulate.go; epochs and locks: window_epoch.go; how
//     memory of another rank is reached: window_memory.go
//   - files: file.go; lengths, Sync and atomic mode: file_size.go; which bytes a rank sees: file_view.go;
//     reads and writes: file_access.go; system calls: file_move.go; collectives: file_collective.go; the
//     shared file pointer: file_shared.go
//   - what a program finds when it starts: init.go
//   - everything behind these: internal/mpi

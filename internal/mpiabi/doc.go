// Package mpiabi executes the calls of the C binding of MPI over package mpi.
//
// A call comes as a number and an array of 64-bit arguments. calls.txt has the C prototypes in
// the order of the numbers. The only values that the package knows for
// handles, constants and MPI_Status are those of the standard's ABI (chapter Application Binary
// Interface of MPI 5.0). A library of another ABI converts at its own border.
//
// Each chapter of the standard has a file, which registers the functions of its calls. The form of a
// call with large counts (MPI_Send_c) has the same function: the prototype says how wide each argument
// is. missing.txt lists the calls that have no function. They fail with
// MPI_ERR_UNSUPPORTED_OPERATION.
//
// The package has no cgo, and its tests run without a C compiler. Memory of the C program is reached
// by its address. Only memory.go does so, and memory_write*.go.
//
// # Requests
//
// A request consists of requests of package mpi, or of calls that goroutines execute. It is over when
// all of them are. Then the call that finds it so stores what has come: items with gaps are received through
// a copy. Its error goes to the error handler of the object that it was begun for.
//
// # Callbacks
//
// The package calls functions of the program through [Config.Callback]: error handlers, operations,
// copy and delete functions of attributes, and later functions of generalized requests. It calls
// them on the goroutine that executes the call. What runs the function is the choice of Callback:
// the thread of the program that waits in the call, or a thread of the library. A function may make
// calls itself, so no lock is held meanwhile.
package mpiabi

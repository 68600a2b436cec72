// Package bench is what `vmmc bench` measures: the library between two processes, beside what the
// machine can do itself, round by round in the same processes; and the library in one program that
// has both ends and the nodes, so that one clock sees a store and its effect.
//
// The command starts nodes and two ends, each a process with a library of its own. The near end
// says by a socket what the far end is to do; nothing passes over it while anything is timed. Both
// ends have an inbox each way, raw memory of the same kind and size, and a raw TCP connection, so
// ours and the limit are measured by the same two processes. Before each round, unless they are
// pinned, they pass a raw flag until the kernel has them on two processors: processes that have
// just woken each other are often on one, and a short round would be over before that changes.
// Times that two processes take are compared by the clock that they share.
package bench

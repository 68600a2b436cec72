// Package supervise is the process that stays with a session's programs on one
// node. It runs as the session's user, starts the programs, keeps what they
// print and how they end, and is the parent of all that they leave behind, so
// that nothing of a session escapes its end. It outlives the node's daemon, which
// finds it again by its socket.
//
// The directory of a session holds the socket and the journal, and belongs to
// the session's user. Nothing in it is trusted by the daemon.
package supervise

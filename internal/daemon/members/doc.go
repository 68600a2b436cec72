// Package members has the processes of a node beyond their connections: the journal from which the
// next daemon knows which processes may rejoin, and those that have ended.
//
// A membership is joined, expected, returning, ended or dropped (memberState has the diagram).
// Journal.mu guards the memberships and the file. The list of those that have ended has a lock of
// its own, which may be taken under it. No call holds a lock while it waits for a process. What a
// Journal needs of its node is in Config.
package members

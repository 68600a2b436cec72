// Package statedir is a node's state directory, which outlives its daemon: the records of sessions,
// and whether there is room on its disk.
//
// A Dir is taken or not, by a lock on a file in it. It has no lock of its own in memory: the table
// of sessions guards it. Disk.mu guards the result of the last check, and is not held while the
// disk is asked.
package statedir

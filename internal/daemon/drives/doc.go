// Package drives has the drives of a node's sessions, and the shares of other machines that are
// mounted for them.
//
// A drive is free, claimed by a session, or made: a symbolic link that the session's record names.
// Drives.mu guards what is claimed. No lock is taken under it, and it is not held while a disk or a
// server is asked.
package drives

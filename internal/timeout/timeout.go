// Package timeout is the one table of how long the project waits for others.
package timeout

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What each one bounds.
const (
	Connect = 5 * time.Second  // dialling a node or an exporting process's node
	Hello   = 5 * time.Second  // all of a hello, and the first byte on the port
	Control = 10 * time.Second // one answer from a daemon or a process that need not wait itself
	Exec    = 8 * time.Second  // the directory, the file and the interpreter of a program to open, less than Control
	Answer  = time.Second      // a process to answer what it can answer at once, before its node is asked
	Ping    = 2 * time.Second  // reachability of a node
	Refused = time.Minute      // from logging a refused connection to logging the next one of the same address and reason
	Silence = 10 * time.Second // a process on another node that owes an answer, or its node's kernel
	Resume  = 30 * time.Second // a link between nodes to go on over another connection
	Drain   = 2 * time.Second  // anything more of a process that is taken for gone, on the link that has not ended yet
	Drained = 10 * time.Second // the last of it
	Idle    = 90 * time.Second // an unused control connection between nodes
	Stop    = 5 * time.Second  // an orderly end

	HostsFile = time.Second            // between looks at the list of nodes
	Links     = 10 * time.Second       // between reads of the links' counters, without a request
	EndRedir  = 100 * time.Millisecond // an importer that has lost its link to stop a copy that is under way
	Abandoned = 5 * time.Second        // between looks of a supervisor whether its session's directory is there
	Replace   = time.Second            // at least, from a supervisor to the one that takes its place
	Settle    = 2 * time.Second        // output of a program that has ended to get into its file
	Mount     = 10 * time.Second       // mount(8) to mount a session's share
	Unmount   = 3 * time.Second        // umount(8), before a mount is detached
	Orphaned  = 500 * time.Millisecond // a client that attends to a run group to come back, before the group is killed
	Restarted = 30 * time.Second       // the same if the daemon has ended: a new one must come first
	Terminate = 2 * time.Second        // from asking a spawned program to end to killing it
)

// Ended is the error of a context that has ended: always its own, and with it the cause that the
// program may have given.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Sleep waits for d, and no longer than until the context ends. It reports whether the context has
// not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil // both may have come
}

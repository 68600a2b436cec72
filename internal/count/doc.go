// Package count counts the instructions that a path through the code takes: those of user mode,
// of one thread, exactly. Times differ from run to run and from machine to machine, and many
// machines have no hardware counters; this needs ptrace alone. A child process runs the paths
// ([Run]), and its parent takes the child's thread through them one instruction at a time ([Of]).
//
// Counted are paths that a single thread takes without waiting. A round in which it had to wait or
// took a signal has more, and one in which another thread did its work has less; the median of
// several rounds is the path's count.
package count

import "slices"

// Path is what is counted.
type Path struct {
	Name   string
	Before func() error // makes things ready for Run, at full speed and uncounted; may be nil
	Run    func() error
}

// Count is how many instructions a path took in each round.
type Count struct {
	Name   string
	Rounds []int
}

// Median is the count of the round in the middle.
func (c Count) Median() int { return slices.Sorted(slices.Values(c.Rounds))[len(c.Rounds)/2] }

// begin is what the child says first, in one line. The first path is one of nothing.
type begin struct {
	Thread int
	Rounds int
	Paths  []string
}

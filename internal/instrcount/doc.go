// Package instrcount counts the instructions that a path through the code takes: those of user
// mode, of one thread, exactly. Times differ from run to run and from machine to machine, and many
// machines have no hardware counters; this needs ptrace alone. A child process runs the paths
// ([Run]), and its parent takes the child's thread through them one instruction at a time
// ([Measure]).
//
// Counted are paths that a single thread takes without waiting. A round in which it had to wait or
// took a signal has more, and one in which another thread did its work has less; the median of
// several rounds is the path's count.
//
// TestInstructions of the root package holds the calls of the data path against
// testdata/instructions.txt: for each the most instructions of user mode that it may take, and how
// many it took when it was measured. The limits are an eighth above that. A change of these paths
// is committed with a new measurement, whether they got longer or shorter:
//
//	go test -run '^TestInstructions$' . -update
//
// The child is a process of one processor, without collections. Single steps give the same number
// each time. valgrind counts whole programs, and a Go program by 0.1 % differently in each run,
// which is more than thousands of sends. A system call counts as one instruction, and so does a
// copy by a repeated instruction. The compiler has a part in the numbers, so another minor version
// of Go means measuring again; the test is skipped until then, and .ci/run fails for it.
package instrcount

import "slices"

// Path is a path through the code whose instructions are counted.
type Path struct {
	Name string
	// Prepares Run, at full speed and uncounted. May be nil.
	Before func() error
	Run    func() error
}

// Count is how many instructions a path took in each round.
type Count struct {
	Name   string
	Rounds []int
}

// Median is the count of the round in the middle.
func (c Count) Median() int { return slices.Sorted(slices.Values(c.Rounds))[len(c.Rounds)/2] }

// begin is the child's first message, in one line. The first path is an empty one.
type begin struct {
	Thread int
	Rounds int
	Paths  []string
}

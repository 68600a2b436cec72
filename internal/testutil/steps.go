package testutil

// LeavesOut reports whether a test leaves out a step of its list on one of the ways on which it
// tries the list. The race detector makes a child that is killed or stopped at a step many times
// slower: with it, each step is tried on one way, and neighbours in the list on different ways.
// Without it, each step is tried on all ways.
func LeavesOut(step, way, ways int) bool { return Slow > 1 && step%ways != way%ways }

// Package invariant holds the code to what its protocols promise. With the build
// tag vmmcdebug (the manual's debug library, vmmcd.lib) a broken promise ends the
// program at once, where it was broken; without it the checks are not compiled.
//
// A check is about this process's own state alone. What a peer says is judged by
// ordinary code, with an error: it must never be able to end this program.
//
// Callers write
//
//	if invariant.Enabled {
//		invariant.Check(a <= b, "a is %d, b %d", a, b)
//	}
//
// so that without the tag not even the arguments are computed.
package invariant

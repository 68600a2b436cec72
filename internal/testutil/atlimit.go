package testutil

import (
	"bytes"
	"testing"
)

// CombinedOutputAtLimit runs a role that brings its process to a limit of mappings, address space
// or threads, and gives what it says and how it has ended, as exec.Cmd.CombinedOutput does. At such
// a limit the Go runtime may be the first to need something for itself, and ends the process. That
// says nothing of what the role tests, so the role is run again then, five times at most.
func CombinedOutputAtLimit(t testing.TB, role string, args ...string) (out []byte, err error) {
	t.Helper()
	for range 5 {
		if out, err = Command(t, role, args...).CombinedOutput(); err == nil || !starved(out) {
			break
		}
	}
	return out, err
}

// starved says whether the Go runtime ended a process, as it got no mapping or thread for its own
// use.
func starved(out []byte) bool {
	for _, why := range []string{
		"fatal error: runtime: cannot allocate memory",
		"fatal error: runtime: cannot map pages",
		"fatal error: runtime: out of memory",
		"fatal error: out of memory",
		"runtime: out of memory: cannot allocate ",
		"runtime: mmap: too much locked memory",
		"runtime/cgo: pthread_create failed",
		"runtime: failed to create new OS thread",
	} {
		if bytes.HasPrefix(out, []byte(why)) {
			return true
		}
	}
	return false
}

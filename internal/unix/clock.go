package unix

import _ "unsafe" // for linkname

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// Monotonic is the time of the clock that time.Since uses, in nanoseconds. On Linux
// all processes of a machine have the same one, so that times taken by two of them
// can be compared; package time has no call that tells it.
func Monotonic() int64 { return nanotime() }

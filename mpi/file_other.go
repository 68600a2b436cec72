//go:build !linux

package mpi

import "os"

// preallocate takes room for the bytes of a file between its end and n.
func preallocate(f *os.File, n int64) error { return fill(f, n) }

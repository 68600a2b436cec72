//go:build !race

package shm

// CopyUnchecked copies what arrived for somebody else's goroutines into memory that
// they poll, or out of memory into which others do that.
func CopyUnchecked(dst, src []byte) { copy(dst, src) }

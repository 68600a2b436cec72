//go:build !race

package shm

// Deposit copies what arrived for somebody else's goroutines into memory that
// they poll.
func Deposit(dst, src []byte) { copy(dst, src) }

//go:build !race

package testutil

// Slow is by how much the race detector makes programs slower; it is off.
const Slow = 1

//go:build race

package testutil

// Slow is by how much the race detector makes programs slower: it says two to twenty times
// (https://go.dev/doc/articles/race_detector), and a restart of 100 processes took 0.72 to 0.78 s
// instead of 0.16 s. A bound that the product is held to is so much later there.
const Slow = 5

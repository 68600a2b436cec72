//go:build race

package testutil

// Slow is by how much the race detector may make a program slower: it says two to twenty times
// (https://go.dev/doc/articles/race_detector). A bound that the product is held to is so much later there.
const Slow = 10

//go:build !race

package broadcast_test

const raceEnabled = false

package integration

import (
	"os"
	"testing"
)

// scaled reduces a count where the race detector is on or -short is given.
func scaled(n int) int {
	if raceEnabled || testing.Short() {
		return n / 20
	}
	return n
}

// long reports whether tests may take the time that they would like.
func long() bool { return os.Getenv("VMMC_CI") == "1" && !raceEnabled }

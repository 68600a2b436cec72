//go:build !race

package guide

const raceEnabled = false

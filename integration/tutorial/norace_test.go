//go:build !race

package tutorial

const raceEnabled = false

//go:build !race

package vrpc

const raceEnabled = false

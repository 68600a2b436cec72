//go:build !race

package vrpc

const RaceEnabled = false

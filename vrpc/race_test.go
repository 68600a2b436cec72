//go:build race

package vrpc

const RaceEnabled = true

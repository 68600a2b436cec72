package shm

import (
	"bytes"
	"math"
	"testing"
)

// Asking for a line changes nothing, and of what is not there it is nothing.
func TestPrefetch(t *testing.T) {
	mem := bytes.Repeat([]byte{7}, 3*64)
	for _, off := range []int{0, 1, 63, 64, len(mem) - 1, len(mem), math.MaxInt, -1, math.MinInt} {
		Prefetch(mem, off)
	}
	Prefetch(nil, 0)
	if !bytes.Equal(mem, bytes.Repeat([]byte{7}, len(mem))) {
		t.Error("the memory has changed")
	}
}

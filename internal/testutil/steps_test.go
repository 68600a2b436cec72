package testutil

import "testing"

// No step may be left out on all ways, with the race detector or without it.
func TestEachStepIsTried(t *testing.T) {
	for ways := 1; ways <= 3; ways++ {
		for step := range 7 {
			tried := 0
			for way := 1; way <= ways; way++ {
				if !LeavesOut(step, way, ways) {
					tried++
				}
			}
			want := ways
			if Slow > 1 {
				want = 1
			}
			if tried != want {
				t.Errorf("step %d is tried on %d of %d ways, want %d", step, tried, ways, want)
			}
		}
	}
}

package testutil

import (
	"testing"
	"time"
)

// No more is stolen in a time than that time, and a tick.
func TestStolen(t *testing.T) {
	before, begun := Stolen(), time.Now()
	time.Sleep(50 * time.Millisecond)
	if s, most := Stolen()-before, time.Since(begun)+20*time.Millisecond; s < 0 || s > most {
		t.Errorf("%v of %v were stolen", s, most)
	}
}

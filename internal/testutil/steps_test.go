package testutil

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

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

// A child stays at a step when it comes there for the time that was named, and goes on when the file
// is there.
func TestPauseAt(t *testing.T) {
	var s Steps
	file := filepath.Join(t.TempDir(), "go on")
	awaits := s.PauseAt("here", "2", file)
	s.At("elsewhere")
	s.At("here")
	if !awaits() {
		t.Fatal("it was there once, and is to stay the second time")
	}
	went := make(chan struct{})
	go func() {
		defer close(went)
		s.At("here")
	}()
	for awaits() {
		runtime.Gosched()
	}
	select {
	case <-went:
		t.Fatal("it went on without the file")
	default:
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-went
	s.At("here") // the third time
}

// A test's function is called until the test ends, or Off.
func TestStepsOff(t *testing.T) {
	var s Steps
	var met []string
	t.Run("on", func(t *testing.T) {
		s.On(t, func(step string) { met = append(met, step) })
		s.At("a")
	})
	s.At("after the test")
	s.On(t, func(step string) { met = append(met, step) })
	s.At("b")
	s.Off()
	s.At("after Off")
	if !slices.Equal(met, []string{"a", "b"}) {
		t.Errorf("%v", met)
	}
}

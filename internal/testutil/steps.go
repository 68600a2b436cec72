package testutil

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// Steps has a test, or a child of one, act at the steps of a protocol. At is the function that the
// protocol calls at each of them. The other methods may be called while it does.
type Steps struct {
	act atomic.Pointer[func(step string)]
}

// At does what the test has set.
func (s *Steps) At(step string) {
	if act := s.act.Load(); act != nil {
		(*act)(step)
	}
}

// On has act called at each step, until the test ends or Off.
func (s *Steps) On(t interface{ Cleanup(f func()) }, act func(step string)) {
	s.act.Store(&act)
	t.Cleanup(s.Off)
}

// Off has nothing called any more. A call that has begun goes on.
func (s *Steps) Off() { s.act.Store(nil) }

// PauseAt has a child print a step when it comes there for the nth time, and stay there until a file
// exists; for ever if file is "". The function that it returns reports whether the child has not
// been there yet.
func (s *Steps) PauseAt(at, nth, file string) (awaits func() bool) {
	n, err := strconv.Atoi(nth)
	if err != nil {
		panic(err)
	}
	var met atomic.Int32
	pause := func(step string) {
		if step != at || met.Add(1) != int32(n) {
			return
		}
		fmt.Println(step)
		if file == "" {
			select {}
		}
		for {
			if _, err := os.Stat(file); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	s.act.Store(&pause)
	return func() bool { return met.Load() < int32(n) }
}

// LeavesOut reports whether a test leaves out a step of its list on one of the ways on which it
// tries the list. The race detector makes a child that is killed or stopped at a step many times
// slower: with it, each step is tried on one way, and neighbours in the list on different ways.
// Without it, each step is tried on all ways.
func LeavesOut(step, way, ways int) bool { return Slow > 1 && step%ways != way%ways }

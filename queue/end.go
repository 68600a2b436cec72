package queue

import (
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// ErrEnd is the error of gets when all producers of a queue with [Producers] have been closed, and
// all values are taken.
//
// Experimental: it may change in any release.
var ErrEnd = errors.New("all producers have been closed, and all values are taken")

// LostError says that a producer of a queue with [Producers] has ended without a Close that
// succeeded: its process has died or left, the link with it was lost, or its Close was given up. It
// is also [vmmc.ErrPeerGone]. A get returns it once for each producer that was lost, behind the
// last value that has arrived of it, and gets then go on with the others. When all have ended, gets
// return the first one again: a queue that has lost a producer never ends with [ErrEnd], unless
// [Consumer.Replace] has let another one in.
//
// Experimental: it may change in any release.
type LostError struct {
	Queue    string         // its name
	Producer vmmc.ProcessID // which was lost
	Values   uint64         // how many of its values were taken: all before these, and none after
	Err      error          // why it has ended
}

// Error returns the whole of it in one line.
func (e *LostError) Error() string {
	return fmt.Sprintf("get from queue %q: producer %s has ended without a close, after %d values: %v",
		e.Queue, e.Producer, e.Values, e.Err)
}

// Unwrap returns [vmmc.ErrPeerGone] and the cause.
func (e *LostError) Unwrap() []error { return []error{vmmc.ErrPeerGone, e.Err} }

package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/internal/pair"
)

// finish is called when a lane has no values and its producer's end mark is there, or it is over. A
// lane with an end mark stays until it is over: its end could overtake the last count.
func (c *Consumer[T]) finish(l *lane, over bool) {
	if !c.opts.ends || !c.countEnd(l) || over {
		c.drop(l)
	}
}

// countEnd counts a producer that has ended, if it had a place. It reports whether the producer has
// sent an end mark that holds.
func (c *Consumer[T]) countEnd(l *lane) bool {
	pair.At("lane.ended")
	c.mu.Lock()
	defer c.mu.Unlock()
	state, count := l.state.Load(), binary.NativeEndian.Uint32(l.own.Bytes()[countOff:])
	marked := state == stateEnded && count == uint32(l.next)
	if l.abandoned || l.finished.Load() || state == stateNone {
		return marked
	}
	l.finished.Store(true)
	c.finished++
	if marked && l.violation.Load() == nil {
		return true
	}
	e := &LostError{Queue: c.name, Producer: l.im.Exporter(), Values: l.next - c.opts.start}
	if c.opts.record >= 0 {
		e.Values = l.records
	}
	if v := l.violation.Load(); v != nil {
		e.Err = v
	} else if e.Err = l.im.Err(); e.Err == nil {
		e.Err = errors.New("its end mark counts other values than those that it has put")
	}
	c.lost, c.untold = append(c.lost, e), append(c.untold, e)
	c.losses.Store(int32(len(c.untold)))
	return false
}

// lossError is the error of a get before it looks for values: a producer that was lost, and of which
// none has told. Otherwise no get would, while other producers keep values coming.
func (c *Consumer[T]) lossError() error {
	if c.losses.Load() == 0 {
		return nil
	}
	return c.endError()
}

// endError is the error of a get that finds no value in a queue that ends: a producer that was
// lost, or the end.
func (c *Consumer[T]) endError() error {
	if !c.opts.ends {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = nil
	switch {
	case len(c.untold) > 0:
		c.told = c.untold[0]
		c.untold = c.untold[1:]
		c.losses.Store(int32(len(c.untold)))
		return c.told
	case c.finished < c.opts.total:
		return nil
	case len(c.lost) > 0:
		return c.lost[0]
	}
	c.ended = true
	return fmt.Errorf("%s: %w", c.op(), ErrEnd)
}

// tellAgain has the next get tell of a loss, if the last one has told of it for the first time, and
// the program has not seen that. The caller holds the consumer's lock.
func (c *Consumer[T]) tellAgain(lost *LostError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost == nil || lost != c.told {
		return
	}
	c.told = nil
	c.untold = slices.Insert(c.untold, 0, lost)
	c.losses.Store(int32(len(c.untold)))
}

// Replace lets another producer dial in place of one that was lost, of which a get has told. The
// queue then ends as if the lost one had never been. It reports whether it did: not for a second
// time, nor for what is not of this queue.
//
// Experimental: it may change in any release.
func (c *Consumer[T]) Replace(lost *LostError) bool {
	if !c.replace(lost) {
		return false
	}
	c.sharesLookAgain()
	return true
}

func (c *Consumer[T]) replace(lost *LostError) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.lost, lost)
	if i < 0 || slices.Contains(c.untold, lost) {
		return false
	}
	c.lost = slices.Delete(c.lost, i, i+1)
	c.finished--
	return true
}

// endsLost reports whether gets find nothing but that a producer was lost.
func (c *Consumer[T]) endsLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finished >= c.opts.total && len(c.lost) > 0
}

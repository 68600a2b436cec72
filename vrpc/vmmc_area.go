package vrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// unit is what an area is given out in.
const unit = 4096

// area is the allocator of the peer's message memory. The writing side allocates.
type area struct {
	mu   sync.Mutex
	used []bool        // by unit
	more chan struct{} // closed when there may be more room; nil: no waiter
}

func newArea(bytes int) *area { return &area{used: make([]bool, bytes/unit)} }

func units(n int) int { return (n + unit - 1) / unit }

// errEnded is what take returns where ended was closed.
var errEnded = errors.New("the area's connection has ended")

// alloc gives out n bytes, and waits for them until ended is closed.
func (a *area) alloc(ctx context.Context, n int, ended <-chan struct{}) (off int, err error) {
	if units(n) > len(a.used) {
		return 0, fmt.Errorf("%w: %d bytes, %d at most", ErrTooLarge, n, len(a.used)*unit)
	}
	for {
		off, more := a.tryAlloc(units(n))
		if more == nil {
			return off, nil
		}
		select {
		case <-more:
		case <-ended:
			return 0, errEnded
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// tryAlloc is take, or says when there is more room.
func (a *area) tryAlloc(n int) (off int, more <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for at, free := 0, 0; at < len(a.used); at++ {
		if free++; a.used[at] {
			free = 0
		}
		if free == n {
			first := at + 1 - n
			for i := range n {
				a.used[first+i] = true
			}
			return first * unit, nil
		}
	}
	if a.more == nil {
		a.more = make(chan struct{})
	}
	return 0, a.more
}

// pad is how much is left free before a message, so that its first opaque data lies on a page: the
// copy is faster, and so is what is done with it there.
func (a *area) pad(parts [][]byte, size int) int {
	if len(parts) < 2 {
		return 0
	}
	pad := -len(parts[0]) & (unit - 1)
	if units(pad+size) > len(a.used) {
		return 0
	}
	return pad
}

// whole appends to dst what is in parts, in pieces that are words, as remote memory wants them:
// where data ends within a word, that one is copied with the padding behind it. parts are changed.
func whole(dst, parts [][]byte) [][]byte {
	for ; len(parts) > 0; parts = parts[1:] {
		b := parts[0]
		odd := len(b) & 3
		if len(b) > odd {
			dst = append(dst, b[:len(b)-odd])
		}
		if odd == 0 {
			continue
		}
		word := append(make([]byte, 0, 4), b[len(b)-odd:]...)
		for len(word) < cap(word) && len(parts) > 1 {
			n := copy(word[len(word):cap(word)], parts[1])
			word, parts[1] = word[:len(word)+n], parts[1][n:]
			if len(parts[1]) == 0 && len(word) < cap(word) {
				parts = parts[1:]
			}
		}
		dst = append(dst, word)
	}
	return dst
}

// free takes n bytes back. It returns false if they were not given out.
func (a *area) free(off, n int) bool {
	first := off / unit
	a.mu.Lock()
	defer a.mu.Unlock()
	if off < 0 || off%unit != 0 || n <= 0 || first > len(a.used) || units(n) > len(a.used)-first {
		return false
	}
	for i := range units(n) {
		if !a.used[first+i] {
			return false
		}
	}
	clear(a.used[first : first+units(n)])
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
	return true
}

package queue

import "slices"

// giveBack has the next gets return values that a sharing has taken, before all others. It returns
// false if the consumer is closed.
func (c *Consumer[T]) giveBack(vs []unfinished[T]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return len(vs) == 0
	}
	if len(vs) == 0 {
		return true
	}
	// Values that another sharing has given back may be earlier or later ones.
	c.returned = slices.Concat(vs, c.returned)
	sortByNumber(c.returned)
	c.returnedSize.Store(int32(len(c.returned)))
	if c.stop != nil { // no message wakes a get that waits
		c.stop()
		c.from = nil
	}
	return true
}

// hasReturned reports whether there are values that were given back.
func (c *Consumer[T]) hasReturned() bool { return c.returnedSize.Load() > 0 }

// takeReturned takes up to n values that were given back. The caller holds the consumer's lock.
func (c *Consumer[T]) takeReturned(n int) []unfinished[T] {
	if !c.hasReturned() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, len(c.returned))
	vs := c.returned[:n:n]
	c.returned = c.returned[n:]
	if len(c.returned) == 0 {
		c.returned = nil
	}
	c.returnedSize.Store(int32(len(c.returned)))
	return vs
}

// nextFetch numbers a value that a sharing takes out of the queue. The caller holds the consumer's
// lock.
func (c *Consumer[T]) nextFetch() uint64 {
	c.fetches++
	return c.fetches
}

func (c *Consumer[T]) addShared(s *Shared[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared = append(c.shared, s)
}

func (c *Consumer[T]) removeShared(s *Shared[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared = slices.DeleteFunc(c.shared, func(o *Shared[T]) bool { return o == s })
}

// sharesLookAgain has the sharings look for values again. The caller holds no lock: they take the
// consumer's under theirs.
func (c *Consumer[T]) sharesLookAgain() {
	c.mu.Lock()
	shared := slices.Clone(c.shared)
	c.mu.Unlock()
	for _, s := range shared {
		s.lookAgain()
	}
}

package daemon

import "sync"

// tasks are the goroutines of a node. Unlike those of a [sync.WaitGroup] they may begin beside
// Wait, when none runs: a call of another node's may outlive the listener that it came by.
type tasks struct {
	mu   sync.Mutex
	n    int
	none sync.Cond // of mu: n is 0
}

// Go runs f on a goroutine of its own.
func (t *tasks) Go(f func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.end()
		f()
	}()
}

func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.none.L != nil {
		t.none.Broadcast()
	}
}

// Wait returns when none runs.
func (t *tasks) Wait() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.none.L = &t.mu; t.n > 0; {
		t.none.Wait()
	}
}

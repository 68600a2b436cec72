package mpi

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// TrySend is Send of a message that leaves at once. ok is false if it cannot: nothing was done then.
func (e *Engine) TrySend(t *Target, buf []byte) (ok bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pr, err := e.target(t)
	if err != nil {
		return false, err
	}
	return len(pr.queue) == 0 && pr.port != nil && pr.eager(t, buf), nil
}

// TryRecv is Recv of an eager message that arrives within a time, or is there already. ok is false if
// none is: nothing was done then. The receive is not posted meanwhile: it is as one that begins when its
// message is taken, after all that are posted.
func (e *Engine) TryRecv(s *Source, buf []byte, patience time.Duration) (st Status, ok bool, err error) {
	e.polls.Add(1)
	e.pollers.Add(1)
	defer e.pollers.Add(-1)
	var end time.Time
	for {
		st, ok, waits, err := e.tryRecv(s, buf)
		if ok || err != nil || waits {
			return st, ok, err
		}
		now := time.Now()
		if end.IsZero() {
			end = now.Add(patience)
		} else if unix.Yield(); now.After(end) { // Its sender may need the processor.
			return Status{}, false, nil
		}
		if e.ending.Load() {
			return Status{}, false, nil
		}
		e.spinNews()
	}
}

// spinNews polls mapped memory until something has arrived, for about 2 µs at most.
func (e *Engine) spinNews() {
	for i := 0; i < spins && !e.ending.Load(); i++ {
		for _, port := range *e.polled.Load() {
			if port.News() {
				return
			}
		}
	}
}

// tryRecv looks once. waits reports whether it is in vain to look again: the message must be asked for.
func (e *Engine) tryRecv(s *Source, buf []byte) (st Status, ok, waits bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.receivable(s); err != nil {
		return Status{}, false, false, err
	}
	i := e.findUnexpected(s)
	if i == 0 {
		e.pollAll()
		i = e.findUnexpected(s)
	}
	if i == 0 || e.q.at(i).kind() != entryEager {
		pr := e.peerOf(s)
		return Status{}, false, i != 0 || len(*e.polled.Load()) == 0 || e.dead > 0 || pr != nil && (pr.port == nil || !pr.port.Polled()), nil
	}
	v := e.q.at(i).get()
	e.q.remove(unexpected, i)
	r := e.newRequest(true)
	r.kind, r.state, r.buf = receiving, isPosted, buf
	r.take(&v)
	st, err = r.outcome()
	e.recycle(r)
	return st, true, false, err
}

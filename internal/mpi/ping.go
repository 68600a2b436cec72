package mpi

import (
	"context"
	"time"
)

// maxPings is how many pings of one rank another one has not answered, at most.
const maxPings = 16

// Ping returns how long the engine of a rank takes to answer (pt_ping). The program of that rank takes no
// part. The first ping of a rank by a module that connects late includes the connection.
func (e *Engine) Ping(ctx context.Context, rank int) (time.Duration, error) {
	e.mu.Lock()
	pr, err := e.target(&Target{Context: OutOfBand(0), Rank: rank}) // revocations do not matter
	if err == nil && pr.pings == maxPings {
		err = Fail(ErrOther, "rank", "%d pings of rank %d of the job are not answered: wait for them first", maxPings, rank)
	}
	if err != nil || pr.port == nil {
		e.mu.Unlock()
		return 0, err
	}
	start := time.Now()
	r := e.newRequest(false)
	r.kind, r.state = pinging, left
	r.setPeer(pr)
	r.register()
	pr.pings++
	pr.control = append(pr.control, Header{kind: kindPing, sreq: r.index})
	pr.pump()
	e.mu.Unlock()
	if r.await(ctx) != nil {
		err := canceled(ctx, "ping")
		e.mu.Lock()
		defer e.mu.Unlock()
		if !r.done.Load() { // it keeps its index until the answer comes
			r.tell(err)
			return 0, err
		}
	}
	return time.Since(start), r.err
}

// All that follows is called with mu held.

// pinged has an answer sent.
func (pr *peer) pinged(h *Header) error {
	if pr.pongs == maxPings {
		return pr.violation("more than %d pings wait for an answer", maxPings)
	}
	pr.pongs++
	pr.control = append(pr.control, Header{kind: kindPong, sreq: h.sreq})
	return nil // Poll's caller pumps
}

// answered ends a ping.
func (pr *peer) answered(h *Header) error {
	r := pr.e.lookUp(h.sreq)
	if r == nil || r.kind != pinging || r.peer != pr {
		return pr.violation("it answers a ping that was not sent")
	}
	pr.pings--
	r.finish(nil)
	return nil
}

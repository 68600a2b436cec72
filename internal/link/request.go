package link

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/wait"
)

// Request is an asynchronous operation. It is a value: a message's number on its
// link is all there is to remember of it. The zero Request is none.
type Request struct {
	o   *Out
	seq uint64    // done when this is acknowledged
	f   *fetch    // or when this is answered
	d   *deferred // or, before either, when this was begun
}

// Valid says whether there is an operation.
func (r *Request) Valid() bool { return r.o != nil }

// Seq is the number of the message, 0 if it was not one of the stream or has none yet.
func (r *Request) Seq() uint64 {
	if r.d != nil && r.d.done.Load() {
		return r.d.seq
	}
	return r.seq
}

// Result says whether the operation is over, and how it went. When it is not, an
// acknowledgement is on its way after this, or somebody at work.
func (r *Request) Result() (done bool, err error) {
	done, err = r.result()
	if !done && r.d != nil && !r.d.done.Load() {
		r.o.hurry()
	}
	return done, err
}

// result is Result for who waits, and does himself what was put off.
func (r *Request) result() (done bool, err error) {
	o, seq := r.o, r.seq
	if d := r.d; d != nil {
		switch {
		case !d.done.Load():
			return false, nil
		case d.err != nil:
			return true, d.err
		}
		seq = d.seq
	}
	if r.f != nil {
		if r.f.done.Now() == 0 {
			return false, nil
		}
		return true, r.f.err
	}
	over := o.over.Load() // before the look: what was acknowledged before the end has arrived
	if o.acked.Load() >= seq {
		if done := !o.unansweredBefore(seq); !done || !o.faulty.Load() {
			return done, nil
		}
		return true, o.fault(seq)
	}
	if over {
		return true, unknown(o.err())
	}
	o.ping(seq)
	return false, nil
}

// Wait returns when the operation is over, or with the context's error.
func (r *Request) Wait(ctx context.Context) (done bool, err error) {
	for {
		tick := r.o.tick.Now()
		if done, err := r.result(); done {
			r.o.e.glance()
			return true, err
		}
		if err := r.o.e.wait(ctx, &wait.Look{Word: r.o.tick.Word(), Old: tick, Own: true}, &r.o.stream); err != nil {
			return false, err
		}
	}
}

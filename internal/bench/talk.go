package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
)

// talk is the socket between the ends, by which the near one says what the far one
// is to do. Nothing passes over it while anything is timed.
type talk struct {
	c  net.Conn
	e  *json.Encoder
	in chan json.RawMessage
}

var errOtherEnd = errors.New("the other end has ended")

// newTalk takes the descriptor. When the other end is gone, cancel is called.
func newTalk(fd uintptr, cancel context.CancelCauseFunc) (*talk, error) {
	f := os.NewFile(fd, "talk")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, err
	}
	t := &talk{c: c, e: json.NewEncoder(c), in: make(chan json.RawMessage)}
	go func() {
		defer close(t.in)
		for d := json.NewDecoder(c); ; {
			var m json.RawMessage
			if err := d.Decode(&m); err != nil {
				if errors.Is(err, io.EOF) {
					err = errOtherEnd
				}
				cancel(err)
				return
			}
			t.in <- m
		}
	}()
	return t, nil
}

func (t *talk) send(v any) error { return t.e.Encode(v) }

func (t *talk) receive(ctx context.Context, v any) error {
	select {
	case m, ok := <-t.in:
		if !ok {
			return context.Cause(ctx)
		}
		return json.Unmarshal(m, v)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *talk) close() {
	_ = t.c.Close()
	for range t.in { // so that the reader is not left behind
	}
}

// job is what the far end is asked to do.
type job struct {
	Do    string `json:"do"`
	Raw   bool   `json:"raw"`
	Fresh bool   `json:"fresh"` // by a new raw TCP connection, which is the ends' from then on
	Size  int    `json:"size"`
	At    int    `json:"at"` // where in the inboxes the messages go
	N     int    `json:"n"`
	Warm  int    `json:"warm"`  // of raw TCP, how many more come before those
	First uint32 `json:"first"` // the first message's last word
	Mode  string `json:"mode"`
}

// answer is given twice: when the far end is ready, and when it has done the job.
type answer struct {
	Err   string    `json:"err,omitempty"`
	Done  bool      `json:"done,omitempty"`
	Value []float64 `json:"value,omitempty"`
}

// begin has the far end begin a job, and returns when it is ready.
func (e *end) begin(ctx context.Context, j job) error {
	if err := e.talk.send(j); err != nil {
		return err
	}
	if _, err := e.hear(ctx); err != nil {
		return err
	}
	if j.Fresh {
		if err := e.join(ctx); err != nil {
			return err
		}
	}
	if !e.settles {
		return nil
	}
	return e.raw.Settle(ctx)
}

// finish returns when the far end has done what it has begun.
func (e *end) finish(ctx context.Context) ([]float64, error) { return e.hear(ctx) }

func (e *end) hear(ctx context.Context) ([]float64, error) {
	var a answer
	if err := e.talk.receive(ctx, &a); err != nil {
		return nil, err
	}
	if a.Err != "" {
		return nil, errors.New("far end: " + a.Err)
	}
	return a.Value, nil
}

// with runs f while the far end does j.
func (e *end) with(ctx context.Context, j job, f func() error) ([]float64, error) {
	if err := e.begin(ctx, j); err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	return e.finish(ctx)
}

// serve is the far end: it does jobs until the near end is gone.
func (e *end) serve(ctx context.Context) error {
	for {
		var j job
		if err := e.talk.receive(ctx, &j); err != nil {
			if errors.Is(err, errOtherEnd) || errors.Is(err, errOver) {
				return nil
			}
			return err
		}
		do, ok := jobs[j.Do]
		if !ok {
			return errors.New("no job " + j.Do)
		}
		var v []float64
		var err error
		if j.Fresh {
			err = e.join(ctx)
		}
		if err == nil {
			v, err = do(ctx, e, j)
		}
		a := answer{Done: true, Value: v}
		if err != nil {
			a.Err = err.Error()
		}
		if err := e.talk.send(a); err != nil {
			return err
		}
	}
}

// ready tells the near end that the job may begin. It returns when both ends are on
// processors of their own, unless they are pinned: then they are where they are.
func (e *end) ready(ctx context.Context) error {
	ready := func() error { return e.talk.send(answer{}) }
	if !e.settles {
		return ready()
	}
	return e.raw.Follow(ctx, ready)
}

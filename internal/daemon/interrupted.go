package daemon

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Between attempts to ask a node again whose daemon has died.
const (
	soonAgain = 10 * time.Millisecond
	lateAgain = 250 * time.Millisecond
)

// interrupted asks another node what may be asked twice. If the connection breaks, the daemon has died under the
// question, and the next one is asked as soon as it is there: for as long as a process would wait for its
// own, and the context lets. A node that nobody answers for in the first place is not waited for.
func interrupted[Q, A any](ctx context.Context, ask func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*connect.Response[A], error) {
	var since time.Time
	for pause := soonAgain; ; pause = min(2*pause, lateAgain) {
		a, err := ask(ctx, connect.NewRequest(q))
		var ce *connect.Error
		switch {
		case err == nil, ctx.Err() != nil, errors.As(err, &ce) && ce.Meta().Get(codeHeader) != "": // else no daemon has said so
			return a, err
		case since.IsZero() && !broken(err), !since.IsZero() && time.Since(since) > timeout.Control:
			return nil, err
		case since.IsZero():
			since = time.Now()
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

// broken says of an error that a connection had been there and has ended.
func broken(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

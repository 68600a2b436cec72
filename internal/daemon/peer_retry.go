package daemon

import (
	"context"
	"errors"
	"io"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Between attempts to ask a node again whose daemon has died.
const (
	minRetryDelay = 10 * time.Millisecond
	maxRetryDelay = 250 * time.Millisecond
)

// retryInterrupted asks another node what may be asked twice. If the connection breaks, the daemon has died under the
// question, or it says that it is ending: the next one is asked as soon as it is there, for as long as a process would
// wait for its own, and the context lets. A node that nobody answers for in the first place is not waited for.
func retryInterrupted[Q, A any](ctx context.Context, ask func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*connect.Response[A], error) {
	var since time.Time
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		asked := time.Now()
		a, err := ask(ctx, connect.NewRequest(q))
		e, answered := answeredError(err)
		ending := answered && e.Code == code.NoDaemon
		if ending { // which is the answer of no daemon for its processes
			err = errors.New(e.Text)
		}
		switch gone := ending || connectionLost(err); {
		case err == nil, ctx.Err() != nil, answered && !ending:
			return a, err
		case gone && since.IsZero():
			since = time.Now()
		case gone: // for as long as it had the question a daemon was there
			since = since.Add(time.Since(asked))
		case since.IsZero():
			return nil, err
		}
		if time.Since(since) > timeout.Control {
			return nil, err
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

// answeredError is the error that a daemon has answered with, if it was one that has.
func answeredError(err error) (e *code.Error, ok bool) {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return nil, false
	}
	n, err := strconv.Atoi(ce.Meta().Get(codeHeader))
	return &code.Error{Code: code.Code(n), Text: ce.Message()}, err == nil
}

// orEnding is err, but of a daemon that is ending that it is: what it says then of its processes, who have lost
// it, is not so, and the next daemon knows them.
func (n *Node) orEnding(err error) error {
	if n.ctx.Err() != nil {
		return code.New(code.NoDaemon, "the daemon of node %q is ending: ask the next one", n.cfg.Name)
	}
	return err
}

// connectionLost says of an error that a connection had been there and has ended.
func connectionLost(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

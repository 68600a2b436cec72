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

// Delays between attempts to reach a node whose daemon has died.
const (
	minRetryDelay = 10 * time.Millisecond
	maxRetryDelay = 250 * time.Millisecond
)

// retryInterrupted sends an idempotent request to another node. If the connection breaks during the
// request, or the daemon answers that it is ending, it repeats the request until the next daemon
// answers, for at most timeout.Control, and until the context ends. A node that does not answer the
// first request is not waited for.
func retryInterrupted[Q, A any](
	ctx context.Context, ask func(context.Context, *connect.Request[Q]) (*connect.Response[A], error),
	q *Q,
) (*connect.Response[A], error) {
	var since time.Time
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		asked := time.Now()
		a, err := ask(ctx, connect.NewRequest(q))
		e, answered := answeredError(err)
		ending := answered && e.Code == code.NoDaemon
		if ending { // a code that a running daemon never sends about its processes
			err = errors.New(e.Text)
		}
		switch gone := ending || connectionLost(err); {
		case err == nil, ctx.Err() != nil, answered && !ending:
			return a, err
		case gone && since.IsZero():
			since = time.Now()
		case gone: // while the request was pending a daemon ran, so that time does not count
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

// answeredError returns the error that the daemon sent; ok is false if the call failed otherwise.
func answeredError(err error) (e *code.Error, ok bool) {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return nil, false
	}
	n, err := strconv.Atoi(ce.Meta().Get(codeHeader))
	return &code.Error{Code: code.Code(n), Text: ce.Message()}, err == nil
}

// orEnding returns err, or NoDaemon while this daemon is ending: then its answers about processes,
// which have lost it, would be wrong, and the next daemon knows them.
func (n *Node) orEnding(err error) error {
	if n.ctx.Err() != nil {
		return code.New(code.NoDaemon, "the daemon of node %q is ending: ask the next one", n.cfg.Name)
	}
	return err
}

// connectionLost reports whether an established connection ended.
func connectionLost(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

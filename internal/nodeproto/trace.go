package nodeproto

import (
	"context"
	"fmt"
	"time"
)

// A Tracer hears of each call when it has its answer. It must not keep in.
type Tracer func(m Method, in any, took time.Duration, err error)

// Trace sets the function that is told of calls. It must come before the first Call.
func (l *Conn) Trace(t Tracer) { l.trace = t }

// Call asks and waits for the answer. fds stay the caller's; those returned are
// the caller's too.
func (l *Conn) Call(
	ctx context.Context, m Method, in any, fds []int, out func([]byte) error,
) ([]int, error) {
	return l.traced(ctx, m, in, fds, out, false)
}

func (l *Conn) traced(
	ctx context.Context, m Method, in any, fds []int, out func([]byte) error, awake bool,
) ([]int, error) {
	if l.trace == nil {
		return l.call(ctx, m, in, fds, out, awake)
	}
	start := time.Now()
	got, err := l.call(ctx, m, in, fds, out, awake)
	l.trace(m, in, time.Since(start), err)
	return got, err
}

var methods = map[Method]string{
	Register: "register", Export: "export", Unexport: "unexport", Import: "import",
	Connect: "connect", Release: "release", Spawn: "spawn",
	Offer: "offer", Accept: "accept", Handover: "handover", Withdraw: "withdraw", Sever: "sever",
	Rejoin: "rejoin", Again: "again",
}

// String is the request's name, for logs.
func (m Method) String() string {
	if s, ok := methods[m]; ok {
		return s
	}
	return fmt.Sprintf("request %d", uint16(m))
}

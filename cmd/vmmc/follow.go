package main

import (
	"bytes"
	"context"
	"io"
	"sync"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// copyLog writes what a process has printed; with follow, until its end.
func (n *asked) copyLog(ctx context.Context, w io.Writer, session string, pid uint32, follow bool) error {
	r := &nodev1.ReadLogRequest{Session: session, Pid: pid}
	if follow {
		r.TimeoutNs = int64(timeout.Control / 2)
	}
	for {
		a, err := n.client.ReadLog(ctx, connect.NewRequest(r))
		if err != nil {
			return told(n, err)
		}
		b := a.Msg.GetData()
		if _, err := w.Write(b); err != nil {
			return err
		}
		r.Offset += int64(len(b))
		if a.Msg.GetDone() || len(b) == 0 && !follow {
			return nil
		}
	}
}

// wait returns when a process has ended.
func (n *asked) wait(ctx context.Context, session string, pid uint32) (*nodev1.Process, error) {
	for {
		a, err := n.client.Wait(ctx, connect.NewRequest(&nodev1.WaitRequest{Session: session, Pid: pid, TimeoutNs: int64(timeout.Control / 2)}))
		if err != nil {
			return nil, told(n, err)
		}
		if p := a.Msg.GetProcess(); p.GetEnded() {
			return p, nil
		}
	}
}

// maxLine is what is kept of a line that has not ended.
const maxLine = 64 << 10

// lines puts a process's name before each of its lines, so that those of
// several can be told apart.
type lines struct {
	mu   *sync.Mutex // one for all that share w
	w    io.Writer
	name string
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < maxLine {
			return len(b), nil
		}
		if i < 0 {
			i = len(l.rest) - 1
		}
		if err := l.put(l.rest[:i+1]); err != nil {
			return 0, err
		}
		l.rest = l.rest[i+1:]
	}
}

// flush writes a last line that has no end.
func (l *lines) flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	defer func() { l.rest = nil }()
	return l.put(append(l.rest, '\n'))
}

func (l *lines) put(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(append([]byte("["+l.name+"] "), line...))
	return err
}

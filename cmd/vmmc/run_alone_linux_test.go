package main

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// A daemon that is older than groups expects no members, and the tool says so. It refuses what a
// daemon asks of processes.
func TestRunAloneBesideAnOlderDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		var conn *nodeproto.Conn
		ready := make(chan struct{})
		conn = nodeproto.NewConn(c, func(ctx context.Context, m nodeproto.Method, _ []byte, _ []int) (any, []int, error) {
			<-ready
			_, err := conn.Call(ctx, nodeproto.Sever, nodeproto.SeverRequest{}, nil, nil)
			if err == nil || !strings.Contains(err.Error(), "not a process") {
				t.Errorf("the tool answers a request: %v", err)
			}
			return nil, nil, code.New(code.BadArg, "request %d before registration", m)
		})
		close(ready)
		<-conn.Done()
	}()
	o := runOptions{count: 2, request: &nodev1.RunRequest{}}
	_, err = o.runAlone(t.Context(), path, []string{"true"}, nil, io.Discard, io.Discard)
	if !errors.Is(err, code.BadArg) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "older than this tool") {
		t.Errorf("%v: does not say what to do", err)
	}
	l.Close() // if it has not dialled
	<-served
}

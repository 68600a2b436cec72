package vrpc_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/vrpc"
)

// sendLingering sends sockets that linger beside b, if the kernel lets it.
func sendLingering(t *testing.T, c *net.UnixConn, b []byte, fds []int) {
	t.Helper()
	_, _, _ = c.WriteMsgUnix(b, unix.Rights(fds), nil)
	go func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
}

func dialUnix(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Clients that send descriptors whose closing takes long delay neither others nor the end of the
// server: also those that have sent them before the server took connections, and those whom it
// never accepts.
func TestFilesOfClients(t *testing.T) {
	for name, b := range map[string][]byte{
		"in a record's mark": {0x80},
		"in a record":        {0x80, 0, 0, 40, 1},
		"with garbage":       make([]byte, 1000),
		"with one byte each": {0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			fds, let := testutil.LingeringSockets(t, 40)
			defer let()
			early := dialUnix(t, path)
			sendLingering(t, early, b, fds[:10])
			s := vrpc.NewServer()
			if err := everyxdr.RegisterEveryvers(s, one{}); err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			c, err := vrpc.Dial(t.Context(), "unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i := range 15 {
				late := dialUnix(t, path)
				sendLingering(t, late, b, fds[10+2*i:12+2*i])
				if i%2 == 0 {
					_ = late.Close()
				}
			}
			testutil.Within(t, "a call of another client", 0, func() {
				if err := everyxdr.NewEveryversClient(c).Null(t.Context()); err != nil {
					t.Errorf("another client: %v", err)
				}
			})
			testutil.Within(t, "Shutdown", 0, func() { // no procedure runs
				if err := s.Shutdown(t.Context()); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				if err := <-served; !errors.Is(err, vrpc.ErrClosed) {
					t.Errorf("Serve: %v", err)
				}
			})
		})
	}
}

// A server that sends its client such descriptors does not delay the client's calls and end.
func TestFilesOfServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fds, let := testutil.LingeringSockets(t, 10)
	defer let()
	for _, dial := range map[string]func() (*vrpc.Client, error){
		"dialled": func() (*vrpc.Client, error) { return vrpc.Dial(t.Context(), "unix", path) },
		"given":   func() (*vrpc.Client, error) { return vrpc.NewClient(dialUnix(t, path)) },
	} {
		accepted := make(chan *net.UnixConn, 1)
		go func() {
			c, err := l.AcceptUnix()
			if err == nil {
				sendLingering(t, c, []byte{0x80}, fds[:5])
			}
			accepted <- c
		}()
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		far := <-accepted
		testutil.Within(t, "a call, and its client's end", time.Millisecond, func() {
			ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
			defer stop()
			if err := everyxdr.NewEveryversClient(c).Null(ctx); err == nil {
				t.Error("a call that is not answered succeeds")
			}
			_ = c.Close()
		})
		_ = far.Close()
		fds = fds[5:]
	}
}

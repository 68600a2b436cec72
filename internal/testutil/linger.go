package testutil

import (
	"net"
	"sync"
	"testing"
)

// LingeringSockets makes n TCP sockets whose closing takes an hour, or until let is called, or the
// test ends: each has data that its peer does not read, and lingers over them. They are the
// caller's.
func LingeringSockets(t testing.TB, n int) (fds []int, let func()) {
	t.Helper()
	c := net.ListenConfig{Control: smallBuffers}
	l, err := c.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var fars []net.Conn
	let = sync.OnceFunc(func() {
		for _, far := range fars {
			_ = far.Close() // with bytes that were not read: that resets the connection
		}
	})
	t.Cleanup(let)
	fds = make([]int, n)
	for i := range fds {
		if fds[i], err = lingering(l.Addr().(*net.TCPAddr).Port); err != nil {
			t.Fatal("a TCP socket that lingers:", err)
		}
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		fars = append(fars, far)
	}
	return fds, let
}

// TCPSocket makes a connected TCP socket, which is the caller's.
func TCPSocket(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err := connected(l.Addr().(*net.TCPAddr).Port)
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	return fd
}

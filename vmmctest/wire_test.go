package vmmctest

import (
	"io"
	"net"
	"testing"
	"time"
)

// What is delayed when its connection is cut is lost, and not sent at once.
func TestDelayedIsLost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	from, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	late := make(chan piece, 1)
	late <- piece{b: []byte{1}, due: time.Now().Add(time.Hour)}
	close(late)
	c := &carried{over: make(chan struct{})}
	close(c.over)
	c.write(to.(*net.TCPConn), late)
	to.Close()
	if b, err := io.ReadAll(from); len(b) > 0 || err != nil {
		t.Errorf("%v has arrived, %v", b, err)
	}
}

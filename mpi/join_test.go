package mpi_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// sockets are the two ends of a connection.
func sockets(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

// Two ranks of different jobs join by a socket, which is theirs again afterwards.
func TestJoin(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	a, b := jobOn(t, nodes[:1], "", 2), jobOn(t, nodes[1:], "", 1)
	one, two := sockets(t)
	for range 3 { // either is the one that accepts
		eachOf(t, a[1:], b, func(ctx context.Context, c *mpi.Comm, second bool) error {
			socket := one
			if second {
				socket = two
			}
			inter, err := c.Join(ctx, socket)
			if err != nil {
				return err
			}
			if err := talkAcross(ctx, inter, 1); err != nil {
				return err
			}
			if err := inter.Disconnect(ctx); err != nil {
				return err
			}
			if _, err := socket.Write([]byte("after")); err != nil {
				return err
			}
			got := make([]byte, len("after"))
			if _, err := socket.Read(got); err != nil {
				return err
			}
			return differs("what follows", got, []byte("after"))
		})
	}
}

func TestJoinFails(t *testing.T) {
	c := job(t, ways[0], 1)[0]
	ctx := within(t)
	if _, err := c.Join(ctx, nil); !errors.Is(err, mpi.ErrArg) {
		t.Errorf("without a socket: %v", err)
	}
	//nolint:staticcheck // A nil context is what is tried.
	if _, err := c.Join(nil, nil); !errors.Is(err, mpi.ErrArg) {
		t.Errorf("without a context: %v", err)
	}
	for what, tell := range map[string]string{
		"the end":                       "",
		"another protocol":              "GET / HTTP/1.1\r\nHost: example\r\n\r\n",
		"a program that has no port":    "vmmcjoin1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00",
		"a port that nobody has open":   "vmmcjoin1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x03abc",
		"a program that cannot connect": "vmmcjoin1" + strings.Repeat("\x00", 17),
	} {
		one, two := sockets(t)
		if _, err := two.Write([]byte(tell)); err != nil {
			t.Fatal(err)
		}
		if err := two.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Join(ctx, one); err == nil {
			t.Errorf("%s: it has joined", what)
		}
	}
	one, _ := sockets(t)
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := c.Join(short, one); !errors.Is(err, mpi.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that says nothing: %v", err)
	}
}

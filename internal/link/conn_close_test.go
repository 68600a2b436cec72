package link

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// tcpPair joins two sockets as they are between nodes.
func tcpPair(t *testing.T) (near, far int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if near, err = unix.TakeOver(a.(*net.TCPConn)); err != nil {
		t.Fatal(err)
	}
	if far, err = unix.TakeOver(b.(*net.TCPConn)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(far) })
	return near, far
}

// overTCP is importer, on a connection as it is between nodes.
func overTCP(t *testing.T) (rq *Requester, far int) {
	t.Helper()
	near, far := tcpPair(t)
	e, _ := engine(t)
	rq, err := NewRequester(e, near, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return rq, far
}

// peek has a waiter look at short frames until some of them are in the socket still.
func peek(t *testing.T, rq *Requester, far int) {
	t.Helper()
	if !rq.rx.canPeek {
		t.Skip("this kernel has no SO_PEEK_OFF for TCP: before Linux 6.9")
	}
	for tries := 0; ; tries++ {
		rq.e.markHot(&rq.stream)
		looks := 0
		if err := rq.e.Wait(t.Context(), wait.Cond{Until: func() bool {
			if looks++; looks%8 == 1 {
				sendRaw(t, far, wire.Header{Type: wire.Bell}, nil)
			}
			return looks == 64+8*(tries%2) // the socket is emptied after as many frames as 64 looks bring
		}}); err != nil {
			t.Fatal(err)
		}
		rq.rmu.Lock()
		n := rq.rx.peeked
		rq.rmu.Unlock()
		switch {
		case n > 0:
			return
		case tries == 1000:
			t.Fatal("no frame is left in the socket")
		}
	}
}

// What is in the kernel's hands arrives though the link is closed, and though the
// last frames that came were only looked at: a TCP socket that is closed with bytes
// in it drops what it was still to send.
func TestSentBeforeTheLinkWasClosed(t *testing.T) {
	rq, far := overTCP(t)
	sent := 0
	for full := false; !full; {
		rq.tmu.Lock()
		h := wire.Header{Type: wire.Bell}
		if rq.pump() {
			rq.tx.addFrame(&h, nil)
			rq.flush()
			sent += wire.HeaderSize
		}
		full = rq.tx.unwritten() > 0
		sent -= rq.tx.unwritten()
		rq.tmu.Unlock()
	}
	peek(t, rq, far)
	rq.Close()
	var r unix.IO
	buf := make([]byte, 1<<20)
	for got := 0; ; {
		n, err := r.Recv(far, buf, nil)
		got += n
		switch {
		case errors.Is(err, io.EOF) && got >= sent:
			return
		case err != nil:
			t.Fatalf("%d of %d bytes have come: %v", got, sent, err)
		case n == 0:
			time.Sleep(time.Millisecond)
		}
	}
}

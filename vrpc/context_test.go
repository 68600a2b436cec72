package vrpc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// numbered are the arguments of the procedure that counts what it was posted.
type numbered struct{ at uint32 }

func (n numbered) EncodeXDR(e *xdr.Encoder) {
	e.Uint32(n.at)
	e.Opaque(nil, 100)
}

// A posted call runs before a later call, also when another caller gives up in between.
func TestPostedCallsAreNotGivenUpByOthers(t *testing.T) {
	s := serve(t, echo, vrpc.InOrder())
	ended, end := context.WithCancel(t.Context())
	end()
	for how, giveUp := range map[string]func(*vrpc.Client) error{
		"call": func(c *vrpc.Client) error {
			_, err := everyxdr.NewEveryversManyClient(c).Add(ended, 1, 2)
			return err
		},
		"flush": func(c *vrpc.Client) error { return c.Flush(ended) },
		"post": func(c *vrpc.Client) error {
			b := octets(make([]byte, 40<<10))
			return c.Post(ended, everyxdr.EVERYPROG, bytesVers, 1, &b)
		},
	} {
		c := s.dial(t, "tcp")
		before := s.two.ran.Load()
		const many = 10
		for i := range uint32(many) {
			if err := c.Post(t.Context(), everyxdr.EVERYPROG, everyxdr.EVERYVERS_MANY, everyxdr.EVERYPROC_PUT, numbered{i + 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := giveUp(c); err == nil {
			t.Errorf("%s: no error of a context that had ended", how)
		}
		if _, err := everyxdr.NewEveryversManyClient(c).Add(t.Context(), 1, 2); err != nil {
			t.Fatal(err)
		}
		if n := s.two.ran.Load() - before; n != many {
			t.Errorf("%s: of %d posted calls %d were run, and a later call was answered", how, many, n)
		}
	}
}

// A connection holds no arguments of calls that have returned.
func TestSlotsHoldNoArguments(t *testing.T) {
	s := serve(t, func(_ context.Context, b []byte) ([]byte, error) { return b[:1], nil })
	c := s.dial(t, "vmmc")
	const many = 16
	freed := make(chan struct{}, many)
	for range many {
		b := make([]byte, 1<<20)
		runtime.AddCleanup(&b[0], func(struct{}) { freed <- struct{}{} }, struct{}{})
		if _, err := callBytes(t.Context(), c, b); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(10 * time.Second); len(freed) < many-1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d arguments are still held", many-len(freed), many)
		}
		runtime.GC()
	}
	runtime.KeepAlive(c)
}

// A datagram of a sender without a name gets no reply, and the next one is answered.
func TestDatagramsOfNobody(t *testing.T) {
	dir := t.TempDir()
	at := &net.UnixAddr{Name: filepath.Join(dir, "server"), Net: "unixgram"}
	pc, err := net.ListenUnixgram("unixgram", at)
	if err != nil {
		t.Fatal(err)
	}
	s := vrpc.NewServer()
	done := make(chan error, 1)
	go func() { done <- s.ServePacket(pc) }()
	call := make([]byte, 40)
	binary.BigEndian.PutUint32(call[8:], 2) // version of RPC; program 0, which is not there
	for _, own := range []*net.UnixAddr{nil, {Name: filepath.Join(dir, "client"), Net: "unixgram"}} {
		c, err := net.DialUnix("unixgram", own, at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(call); err != nil {
			t.Fatal(err)
		}
		if own != nil {
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := c.Read(make([]byte, 100)); n < 24 || err != nil {
				t.Errorf("an answer of %d bytes, %v", n, err)
			}
		}
	}
	_ = s.Close()
	if err := <-done; !errors.Is(err, vrpc.ErrClosed) {
		t.Errorf("the server ended with %v", err)
	}
}

// A socket that is not connected can have no client.
func TestUnconnectedSocket(t *testing.T) {
	u, err := net.ListenUDP("udp", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := vrpc.NewClient(u); err == nil {
		_ = c.Close()
		t.Error("no error")
	}
}

// A call that a handler of notifications may not make says so, and is no end of the connection.
func TestCallInAHandler(t *testing.T) {
	s := serve(t, echo)
	p, q := s.process(t), s.process(t)
	c, err := vrpc.DialVMMC(t.Context(), p, s.p.ID(), vrpc.Meeting)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mem, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	if _, err := p.Export(9, mem.Bytes(), vmmc.WithHandler(func(vmmc.Notification) {
		got <- c.Call(context.Background(), 1, 1, 0, xdr.Void{}, xdr.Void{})
	})); err != nil {
		t.Fatal(err)
	}
	im, err := q.Import(t.Context(), p.Node(), p.PID(), 9)
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	if err := im.SendNotify(t.Context(), make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, vmmc.ErrNotInHandler) {
		t.Errorf("in the handler: %v, want %v", err, vmmc.ErrNotInHandler)
	}
	if _, err := callBytes(t.Context(), c, []byte("x")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A server does not wait for a client that sends half of a record header.
func TestHalfARecordHeader(t *testing.T) {
	s := serve(t, echo, vrpc.WithServerTimes(50*time.Millisecond, time.Second, 0))
	c, err := net.Dial("tcp", s.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{0x80, 0}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	var timeout net.Error
	if _, err = c.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the connection is open still: %v", err)
	}
}

package vrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/internal/rpcrecord"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// A client that never reads its replies, or never ends its record, is disconnected, and the others
// are served all the while.
func TestBadClients(t *testing.T) {
	s := serve(t, func(context.Context, []byte) ([]byte, error) { return make([]byte, 1<<20), nil },
		vrpc.WithServerTimes(100*time.Millisecond, time.Second, 0), vrpc.WithConcurrency(2, 2))
	call, err := xdr.Append(make([]byte, rpcrecord.MarkLen), &rpcmsg.Call{Program: everyxdr.EVERYPROG, Version: bytesVers, Procedure: 1})
	if err != nil {
		t.Fatal(err)
	}
	call = append(call, 0, 0, 0, 0)
	rpcrecord.Mark(call, len(call)-rpcrecord.MarkLen)
	for name, b := range map[string][]byte{
		"does not read":      bytes.Repeat(call, 1000),
		"huge":               {0x7f, 0xff, 0xff, 0xff},
		"no end":             {0, 0, 0, 4, 1, 2, 3, 4},
		"nothing":            bytes.Repeat([]byte{0, 0, 0, 0}, 100),
		"half a header":      append(bytes.Clone(call), 0x80),
		"half a record":      call[:20],
		"a record of a byte": {0x80, 0, 0, 1, 9}, // not answered
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.tcp)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = c.Write(b)
			}()
			good := everyxdr.NewEveryversClient(s.dial(t, "tcp"))
			for range 20 {
				if err := good.Null(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			switch name {
			case "a record of a byte", "half a header":
				_ = c.Close()
			case "does not read":
				<-sent // the server has closed it
			default:
				// The server closes it, and that is all that is read.
				if n, err := io.Copy(io.Discard, c); n != 0 {
					t.Errorf("%d bytes, %v", n, err)
				}
			}
			<-sent
		})
	}
}

// A length of 4 GB in a short message allocates nothing.
func TestPromises(t *testing.T) {
	s := serve(t, echo)
	everywhere(t, func(t *testing.T, network string) { promises(t, s.dial(t, network)) })
}

func promises(t *testing.T, c *vrpc.Client) {
	huge := xdrUint32(1<<32 - 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		for proc, vers := range map[uint32]uint32{1: bytesVers, everyxdr.EVERYPROC_LENGTH: 1} {
			if err := c.Call(t.Context(), everyxdr.EVERYPROG, vers, proc, huge, xdr.Void{}); !errors.Is(err, vrpc.ErrGarbageArgs) {
				t.Fatal(err)
			}
		}
	}
	// With the race detector pools forget some of what they are given.
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 64<<20 {
		t.Errorf("%d bytes were allocated", after.TotalAlloc-before.TotalAlloc)
	}
}

type xdrUint32 uint32

func (v xdrUint32) EncodeXDR(e *xdr.Encoder) { e.Uint32(uint32(v)) }

// No more procedures run at once than may.
func TestConcurrency(t *testing.T) {
	const most = 3
	var running, high atomic.Int32
	s := serve(t, func(_ context.Context, b []byte) ([]byte, error) {
		n := running.Add(1)
		for old := high.Load(); n > old && !high.CompareAndSwap(old, n); old = high.Load() {
		}
		runtime.Gosched()
		running.Add(-1)
		return b, nil
	}, vrpc.WithConcurrency(most, 100))
	var wg sync.WaitGroup
	for _, network := range []string{"tcp", "unix", "udp", "vmmc", "stream"} {
		c := s.dial(t, network)
		for range 20 {
			wg.Go(func() {
				for range 20 {
					if _, err := callBytes(t.Context(), c, []byte("x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if n := high.Load(); n > most {
		t.Errorf("%d ran at once", n)
	}
}

// Beyond its connections a server closes those that come.
func TestTooManyConnections(t *testing.T) {
	s := serve(t, echo, vrpc.WithConnections(1))
	first := everyxdr.NewEveryversClient(s.dial(t, "tcp"))
	if err := first.Null(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := everyxdr.NewEveryversClient(s.dial(t, "tcp")).Null(t.Context()); !errors.Is(err, vrpc.ErrLost) {
		t.Error(err)
	}
	if err := first.Null(t.Context()); err != nil {
		t.Error(err)
	}
}

// lossy is a relay between a client and a server that loses each datagram's first copies and
// doubles others.
func lossy(t *testing.T, server string, lose int) string {
	t.Helper()
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.Dial("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	var client atomic.Value
	var wg sync.WaitGroup
	pass := func(read func([]byte) (int, error), write func([]byte)) {
		seen := map[uint32]int{}
		b := make([]byte, 1<<16)
		for {
			n, err := read(b)
			if err != nil {
				return
			}
			xid := binary.BigEndian.Uint32(b[:n])
			if seen[xid]++; seen[xid] <= lose {
				continue
			}
			write(b[:n])
			write(b[:n])
		}
	}
	wg.Go(func() {
		pass(func(b []byte) (int, error) {
			n, from, err := front.ReadFrom(b)
			if err == nil {
				client.Store(from)
			}
			return n, err
		}, func(b []byte) { _, _ = back.Write(b) })
	})
	wg.Go(func() {
		pass(back.Read, func(b []byte) { _, _ = front.WriteTo(b, client.Load().(net.Addr)) })
	})
	t.Cleanup(func() {
		_ = front.Close()
		_ = back.Close()
		wg.Wait()
	})
	return front.LocalAddr().String()
}

// Where calls and replies are lost and doubled, each call is run once and answered.
func TestLoss(t *testing.T) {
	s := serve(t, echo)
	c, err := vrpc.Dial(t.Context(), "udp", lossy(t, s.udp, 2), vrpc.WithRetry(time.Millisecond, 30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 20
	for range n {
		if err := everyxdr.NewEveryversManyClient(c).Put(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	if ran := s.two.ran.Load(); ran != n {
		t.Errorf("%d calls were run %d times", n, ran)
	}
}

// Where no server answers, a call is given up in its time.
func TestNoAnswer(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := vrpc.Dial(t.Context(), "udp", silent.LocalAddr().String(), vrpc.WithRetry(time.Millisecond, 30*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Call(t.Context(), 1, 1, 0, xdr.Void{}, xdr.Void{}); !errors.Is(err, vrpc.ErrTimeout) {
		t.Error(err)
	}
}

func TestRegister(t *testing.T) {
	s := vrpc.NewServer()
	v := bytesService(echo)
	if err := s.Register(v); err != nil {
		t.Fatal(err)
	}
	p := vrpc.Procedure{Number: 1, New: v.Procedures[0].New}
	for name, bad := range map[string]*vrpc.Service{
		"twice":        v,
		"none":         nil,
		"no New":       {Program: 1, Procedures: []vrpc.Procedure{{}}},
		"out of order": {Program: 1, Procedures: []vrpc.Procedure{p, p}},
	} {
		if s.Register(bad) == nil {
			t.Error(name)
		}
	}
	if l := s.Services(); len(l) != 1 || l[0] != v {
		t.Errorf("%v", l)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(l); !errors.Is(err, vrpc.ErrClosed) {
		t.Error(err)
	}
}

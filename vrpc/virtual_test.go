package vrpc_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/vrpc"
)

// What is in a call and in its reply, without credentials.
const (
	xidAt     = 3
	versionAt = 11
	argsAt    = 44 // behind their length
	resultsAt = 28
)

// A call by datagrams is sent again at its times and no others, and run as often as a server that
// remembers it for two minutes does. Datagrams are of a network in memory, and time is virtual.
func TestRetransmission(t *testing.T) {
	const minute = time.Minute
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	lose := func(at ...int) (f []simnet.Packet) {
		for _, n := range at {
			f = append(f, simnet.Packet{At: n, Kind: simnet.Lose})
		}
		return f
	}
	first := func(f simnet.Packet) []simnet.Packet { return []simnet.Packet{f} }
	flip := func(n int) []simnet.Packet { return first(simnet.Packet{Kind: simnet.Flip, Len: n}) }
	retry := func(first, total time.Duration) []vrpc.ClientOption {
		return []vrpc.ClientOption{vrpc.WithRetry(first, total)}
	}
	for name, r := range map[string]struct {
		there, back []simnet.Packet
		opts        []vrpc.ClientOption
		slow        time.Duration // the procedure
		until       time.Duration // the call's context, 0: as long as it likes

		after             time.Duration // the call returns
		got               string
		err               error
		sent, ran, answer int
	}{
		"nothing happens":        {got: "call", sent: 1, ran: 1, answer: 1},
		"a call is lost":         {there: lose(0), after: ms(250), got: "call", sent: 2, ran: 1, answer: 1},
		"five calls are lost":    {there: lose(0, 1, 2, 3, 4), after: ms(7750), got: "call", sent: 6, ran: 1, answer: 1},
		"the longest pause":      {there: lose(0, 1, 2, 3, 4, 5, 6, 7), after: ms(31750), got: "call", sent: 9, ran: 1, answer: 1},
		"a reply is lost":        {back: lose(0), after: ms(250), got: "call", sent: 2, ran: 1, answer: 2},
		"four replies are lost":  {back: lose(0, 1, 2, 3), after: ms(3750), got: "call", sent: 5, ran: 1, answer: 5},
		"both are lost":          {there: lose(0), back: lose(0), after: ms(750), got: "call", sent: 3, ran: 1, answer: 2},
		"a call comes late":      {there: first(simnet.Packet{Kind: simnet.Stall, For: ms(600)}), after: ms(250), got: "call", sent: 2, ran: 1, answer: 2},
		"a reply comes late":     {back: first(simnet.Packet{Kind: simnet.Stall, For: ms(300)}), after: ms(250), got: "call", sent: 2, ran: 1, answer: 2},
		"a reply comes in time":  {back: first(simnet.Packet{Kind: simnet.Stall, For: ms(249)}), after: ms(249), got: "call", sent: 1, ran: 1, answer: 1},
		"a call comes twice":     {there: first(simnet.Packet{Kind: simnet.Repeat, For: 1}), got: "call", sent: 1, ran: 1, answer: 2},
		"a reply comes twice":    {back: first(simnet.Packet{Kind: simnet.Repeat, For: ms(1)}), got: "call", sent: 1, ran: 1, answer: 1},
		"a call is remembered":   {there: first(simnet.Packet{Kind: simnet.Repeat, For: 2*minute - 1}), got: "call", sent: 1, ran: 1, answer: 2},
		"a call is forgotten":    {there: first(simnet.Packet{Kind: simnet.Repeat, For: 2 * minute}), got: "call", sent: 1, ran: 2, answer: 2},
		"the procedure is slow":  {slow: ms(1000), after: ms(1000), got: "call", sent: 3, ran: 1, answer: 1},
		"a call has a new name":  {there: flip(xidAt), after: ms(250), got: "call", sent: 2, ran: 2, answer: 2},
		"a reply has a new name": {back: flip(xidAt), after: ms(250), got: "call", sent: 2, ran: 1, answer: 2},
		"a call says version 3":  {there: flip(versionAt), err: vrpc.ErrRPCMismatch, sent: 1, answer: 1},
		"arguments are changed":  {there: flip(argsAt), got: "ball", sent: 1, ran: 1, answer: 1}, // UDP has a checksum for that
		"results are changed":    {back: flip(resultsAt), got: "ball", sent: 1, ran: 1, answer: 1},
		"a call is cut short":    {there: first(simnet.Packet{Kind: simnet.Trunc, Len: 39}), after: ms(250), got: "call", sent: 2, ran: 1, answer: 1},
		"a reply has no name":    {back: first(simnet.Packet{Kind: simnet.Trunc, Len: 3}), after: ms(250), got: "call", sent: 2, ran: 1, answer: 2},
		"a reply is cut short":   {back: first(simnet.Packet{Kind: simnet.Trunc, Len: 23}), err: vrpc.ErrReply, sent: 1, ran: 1, answer: 1},
		"nobody is there":        {there: first(simnet.Packet{Kind: simnet.Part}), after: minute, err: vrpc.ErrTimeout, sent: 12},
		"nobody is heard":        {back: first(simnet.Packet{Kind: simnet.Part}), after: minute, err: vrpc.ErrTimeout, sent: 12, ran: 1, answer: 12},
		"it is given up":         {there: lose(0, 1, 2), until: ms(400), after: ms(400), err: context.DeadlineExceeded, sent: 2},
		"other times":            {there: lose(0, 1), opts: retry(time.Second, minute), after: 3 * time.Second, got: "call", sent: 3, ran: 1, answer: 1},
		"another end":            {there: lose(0, 1, 2), opts: retry(time.Second, 5*time.Second), after: 5 * time.Second, err: vrpc.ErrTimeout, sent: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ran atomic.Int32
				c, near, far := across(t, r.there, r.back, func(_ context.Context, b []byte) ([]byte, error) {
					ran.Add(1)
					time.Sleep(r.slow)
					return b, nil
				}, r.opts...)
				ctx := t.Context()
				if r.until > 0 {
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, r.until)
					defer stop()
				}
				began := time.Now()
				got, err := callBytes(ctx, c, []byte("call"))
				if took := time.Since(began); took != r.after {
					t.Errorf("it took %v, want %v", took, r.after)
				}
				if string(got) != r.got || !errors.Is(err, r.err) {
					t.Errorf("%q, %v, want %q, %v", got, err, r.got, r.err)
				}
				time.Sleep(3 * minute) // until what is late has come
				if s, n, a := near.Sent(), int(ran.Load()), far.Sent(); s != r.sent || n != r.ran || a != r.answer {
					t.Errorf("it was sent %d times, run %d times and answered %d times, want %d, %d and %d", s, n, a, r.sent, r.ran, r.answer)
				}
			})
		})
	}
}

// across is a client of a server at the other end of a network of datagrams.
func across(t *testing.T, there, back []simnet.Packet, f blobFunc, opts ...vrpc.ClientOption) (c *vrpc.Client, near, far *simnet.Port) {
	t.Helper()
	near, far = simnet.Datagrams(there, back)
	s := vrpc.NewServer()
	if err := s.Register(bytesService(f)); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.ServePacket(far); !errors.Is(err, vrpc.ErrClosed) {
			t.Error(err)
		}
	})
	c, err := vrpc.NewClient(near, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		_ = s.Close()
		serving.Wait()
	})
	return c, near, far
}

// Whatever has UDP addresses carries datagrams, and nothing else does, whatever it could.
func TestAnyDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, near, _ := across(t, nil, nil, echo)
		var calls sync.WaitGroup
		for i := range byte(20) {
			calls.Go(func() {
				if b, err := callBytes(t.Context(), c, []byte{i}); err != nil || len(b) != 1 || b[0] != i {
					t.Errorf("call %d: %v, %v", i, b, err)
				}
			})
		}
		calls.Wait()
		if n := near.Sent(); n != 20 {
			t.Errorf("20 calls were %d datagrams", n)
		}
	})
	for name, conn := range map[string]net.Conn{
		"unconnected":        new(alone),
		"UDP to nobody else": listening(t),
	} {
		if c, err := vrpc.NewClient(conn); err == nil {
			_ = c.Close()
			t.Errorf("%s: there is a client of nobody", name)
		}
		if err := conn.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: it was not closed: %v", name, err)
		}
	}
	// A unix socket is both, and here a stream.
	s := serve(t, echo)
	conn, err := net.Dial("unix", s.unix)
	if err != nil {
		t.Fatal(err)
	}
	if _, both := conn.(net.PacketConn); !both {
		t.Fatal("a unix socket is no PacketConn any more")
	}
	c, err := vrpc.NewClient(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := callBytes(t.Context(), c, []byte("stream")); err != nil || string(b) != "stream" {
		t.Errorf("%q, %v", b, err)
	}
}

// alone is a port without a peer.
type alone struct {
	simnet.Port
	closed bool
}

func (*alone) LocalAddr() net.Addr  { return &net.UDPAddr{} }
func (*alone) RemoteAddr() net.Addr { return nil }

func (a *alone) Close() error {
	if a.closed {
		return net.ErrClosed
	}
	a.closed = true
	return nil
}

func listening(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

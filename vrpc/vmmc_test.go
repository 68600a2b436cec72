package vrpc_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// Replies and requests that do not fit into the memory at once wait for each other and all arrive,
// also where one goroutine answers.
func TestAreas(t *testing.T) {
	for _, opts := range [][]vrpc.ServerOption{nil, {vrpc.InOrder()}} {
		s := serve(t, echo, append(opts, vrpc.WithServerArea(200_000))...)
		for _, network := range []string{"vmmc", "stream"} {
			c := s.dial(t, network, vrpc.WithArea(8, 150_000))
			var wg sync.WaitGroup
			for g := range 12 {
				wg.Go(func() {
					for i := range 20 {
						want := bytes.Repeat([]byte{byte(g), byte(i)}, 1+(g*20+i)*211%50_000)
						if b, err := callBytes(t.Context(), c, want); err != nil || !bytes.Equal(b, want) {
							t.Errorf("%d bytes: %d, %v", len(want), len(b), err)
						}
					}
				})
			}
			wg.Wait()
			if _, err := callBytes(t.Context(), c, make([]byte, 300_000)); !errors.Is(err, vrpc.ErrTooLarge) {
				t.Errorf("a call without room: %v", err)
			}
			if _, err := callBytes(t.Context(), c, make([]byte, 170_000)); !errors.Is(err, vrpc.ErrSystem) {
				t.Errorf("a reply without room: %v", err)
			}
		}
	}
}

// Requests and replies that just fit into an entry, and those that just do not: with 44 and 28
// bytes before them these are 196 and 212 bytes.
func TestFullEntries(t *testing.T) {
	s := serve(t, echo)
	for _, network := range []string{"vmmc", "stream"} {
		for _, from := range []int{190, 212} { // the second client's first reply is as long as an entry has room for
			c := s.dial(t, network)
			for n := from; n < 220; n++ {
				want := bytes.Repeat([]byte{byte(n)}, n)
				if b, err := callBytes(t.Context(), c, want); err != nil || !bytes.Equal(b, want) {
					t.Errorf("%s: %d bytes: %x, %v", network, n, b, err)
				}
			}
		}
	}
}

// lingering is a result that takes as long to decode as its caller likes, which keeps the call's
// memory.
type lingering struct {
	octets
	begun, end chan struct{}
}

func (l *lingering) DecodeXDR(d *xdr.Decoder) {
	close(l.begun)
	<-l.end
	l.octets.DecodeXDR(d)
}

// A caller that waits for another call to end, and one that calls while the client's memory is
// still in use, get ErrClosed, though Close waits for that memory.
func TestCallsBesideClose(t *testing.T) {
	for _, network := range []string{"vmmc", "stream"} {
		c := serve(t, echo).dial(t, network, vrpc.WithArea(1, 1<<16))
		l := &lingering{begun: make(chan struct{}), end: make(chan struct{})}
		first, second, closed := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() {
			in := octets("first")
			first <- c.Call(t.Context(), everyxdr.EVERYPROG, bytesVers, 1, &in, l)
		}()
		select {
		case <-l.begun:
		case err := <-first:
			t.Fatal(err)
		}
		go func() {
			_, err := callBytes(t.Context(), c, []byte("second"))
			second <- err
		}()
		go func() { closed <- c.Close() }()
		if err := <-second; !errors.Is(err, vrpc.ErrClosed) {
			t.Errorf("%s: the call that waited for a slot failed with %v", network, err)
		}
		if _, err := callBytes(t.Context(), c, []byte("third")); !errors.Is(err, vrpc.ErrClosed) {
			t.Errorf("%s: the call during Close failed with %v", network, err)
		}
		select {
		case err := <-closed:
			t.Errorf("%s: Close returned, with %v, while a call used the client's memory", network, err)
		default:
		}
		close(l.end)
		if err := <-first; err != nil || string(l.octets) != "first" {
			t.Errorf("%s: the call that was answered before: %q, %v", network, l.octets, err)
		}
		if err := <-closed; err != nil {
			t.Errorf("%s: Close: %v", network, err)
		}
	}
}

// The handler of a service that is registered so sees the arguments where they arrived: in the
// memory that the client wrote to.
func TestInPlace(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		s := serve(t, echo)
		var r vrpc.Registrar = s
		if inPlace {
			r = s.InPlace()
		}
		seen := make(chan *byte, 2)
		v := bytesService(func(_ context.Context, b []byte) ([]byte, error) {
			seen <- &b[0]
			return b[:1], nil
		})
		v.Version = 4
		if err := r.Register(v); err != nil {
			t.Fatal(err)
		}
		c := s.dial(t, "vmmc")
		for range 2 {
			in, out := octets(make([]byte, 100_000)), octets(nil)
			if err := c.Call(t.Context(), everyxdr.EVERYPROG, 4, 1, &in, &out); err != nil {
				t.Fatal(err)
			}
		}
		first, second := <-seen, <-seen
		if same := first == second; same != inPlace {
			t.Errorf("in place %v: the same memory twice: %v", inPlace, same)
		}
	}
}

// A procedure that takes long holds up no other call of its connection.
func TestSlowCall(t *testing.T) {
	hold := make(chan struct{})
	s := serve(t, func(_ context.Context, b []byte) ([]byte, error) {
		<-hold
		return b, nil
	})
	everywhere(t, func(t *testing.T, network string) {
		c := s.dial(t, network)
		slow := make(chan error, 1)
		go func() {
			_, err := callBytes(t.Context(), c, nil)
			slow <- err
		}()
		for range 200 {
			if n, err := everyxdr.NewEveryversManyClient(c).Add(t.Context(), 1, 2); err != nil || n != 3 {
				t.Fatal(n, err)
			}
		}
		select {
		case err := <-slow:
			t.Errorf("it has returned: %v", err)
		default:
		}
		hold <- struct{}{}
		if err := <-slow; err != nil {
			t.Error(err)
		}
	})
}

// Many clients connect at once, and each is answered.
func TestManyClients(t *testing.T) {
	s := serve(t, echo)
	p := s.process(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := vrpc.DialVMMC(t.Context(), p, s.p.ID(), vrpc.Meeting, vrpc.WithArea(2, 1))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if b, err := callBytes(t.Context(), c, []byte("x")); err != nil || string(b) != "x" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	wg.Wait()
}

// A client that cannot connect is told why.
func TestCannotConnect(t *testing.T) {
	s := serve(t, echo, vrpc.WithConnections(1))
	first := s.dial(t, "vmmc")
	p := s.process(t)
	if _, err := vrpc.DialVMMC(t.Context(), p, s.p.ID(), vrpc.Meeting); !errors.Is(err, vrpc.ErrLost) {
		t.Errorf("a connection too many: %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := vrpc.DialVMMC(ctx, p, s.p.ID(), 77); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("a server that is not there: %v", err)
	}
	if err := first.Call(t.Context(), everyxdr.EVERYPROG, 1, 0, xdr.Void{}, xdr.Void{}); err != nil {
		t.Error(err)
	}
}

// A null call by remote memory allocates nothing at either end.
func TestNoAllocations(t *testing.T) {
	if vrpc.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	s := serve(t, echo)
	for _, network := range []string{"vmmc", "stream"} {
		e := everyxdr.NewEveryversClient(s.dial(t, network))
		null := func() {
			if err := e.Null(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			null()
		}
		if n := testing.AllocsPerRun(1000, null); n > 0 {
			t.Errorf("%s: %v allocations", network, n)
		}
	}
}

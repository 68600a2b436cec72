package vrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/internal/rpcrecord"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// Many calls of many goroutines on one client have each their own answer.
func TestCalls(t *testing.T) {
	s := serve(t, echo)
	everywhere(t, func(t *testing.T, network string) {
		c := s.dial(t, network)
		m := everyxdr.NewEveryversManyClient(c)
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				for i := range 30 {
					if n, err := m.Add(t.Context(), int32(g), int64(i)<<32); err != nil || n != int64(g)+int64(i)<<32 {
						t.Errorf("Add: %v, %v", n, err)
					}
					want := bytes.Repeat([]byte{byte(g), byte(i)}, 1+g*i*7)
					if b, err := callBytes(t.Context(), c, want); err != nil || !bytes.Equal(b, want) {
						t.Errorf("Blob of %d bytes: %d, %v", len(want), len(b), err)
					}
				}
			})
		}
		wg.Wait()
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Each way in which a call may fail is told from the others, and the connection is as good as
// before.
func TestFailures(t *testing.T) {
	s := serve(t, func(_ context.Context, b []byte) ([]byte, error) {
		switch string(b) {
		case "auth":
			return nil, &vrpc.AuthError{Stat: vrpc.AuthFailed}
		case "garbage":
			return nil, vrpc.ErrGarbageArgs
		case "long":
			return make([]byte, 5<<20), nil
		}
		return b, nil
	})
	const prog, vers = everyxdr.EVERYPROG, everyxdr.EVERYVERS
	everywhere(t, func(t *testing.T, network string) {
		c := s.dial(t, network)
		e := everyxdr.NewEveryversClient(c)
		call := func(prog, vers, proc uint32, args xdr.Marshaler) error {
			return c.Call(t.Context(), prog, vers, proc, args, xdr.Void{})
		}
		blob := func(b string) error {
			_, err := callBytes(t.Context(), c, []byte(b))
			return err
		}
		_, paint := e.Paint(t.Context(), everyxdr.RED)
		_, reply := everyxdr.NewEveryversManyClient(c).Move(t.Context(), &everyxdr.Point{}, 0, "")
		for _, r := range []struct {
			name      string
			got, want error
		}{
			{"program", call(prog+1, vers, 0, xdr.Void{}), vrpc.ErrProgUnavail},
			{"version", call(prog, 7, 0, xdr.Void{}), vrpc.ErrProgMismatch},
			{"procedure", call(prog, vers, 77, xdr.Void{}), vrpc.ErrProcUnavail},
			{"unimplemented", reply, vrpc.ErrProcUnavail},
			{"no arguments", call(prog, vers, everyxdr.EVERYPROC_ECHO, xdr.Void{}), vrpc.ErrGarbageArgs},
			{"too many arguments", call(prog, vers, 0, everyxdr.RED), vrpc.ErrGarbageArgs},
			{"results left over", c.Call(t.Context(), prog, vers, everyxdr.EVERYPROC_LENGTH, xdrString("abc"), xdr.Void{}), vrpc.ErrReply},
			{"failed", paint, vrpc.ErrSystem},
			{"auth", blob("auth"), vrpc.ErrAuth},
			{"garbage", blob("garbage"), vrpc.ErrGarbageArgs},
			{"long result", blob("long"), vrpc.ErrSystem},
			{"long argument", blob(string(make([]byte, 5<<20))), vrpc.ErrTooLarge},
		} {
			if !errors.Is(r.got, r.want) {
				t.Errorf("%s: %v, want %v", r.name, r.got, r.want)
			}
		}
		var mis *vrpc.MismatchError
		if err := call(prog, 7, 0, xdr.Void{}); !errors.As(err, &mis) || mis.Low != 1 || mis.High != bytesVers {
			t.Errorf("versions: %v", err)
		}
		if err := blob("fine"); err != nil {
			t.Error(err)
		}
	})
}

type xdrString string

func (s xdrString) EncodeXDR(e *xdr.Encoder) { e.String(string(s), xdr.Unlimited) }

// A server answers a message of another version of RPC, and credentials that it does not take, as
// the RFC says.
func TestDenied(t *testing.T) {
	s := serve(t, echo)
	c, err := net.Dial("tcp", s.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := rpcrecord.NewReader(c, 1000, nil)
	for _, q := range []struct {
		version uint32
		cred    rpcmsg.Auth
		want    rpcmsg.Reply
	}{
		{3, rpcmsg.Auth{}, rpcmsg.Reply{Outcome: rpcmsg.RPCMismatch, Low: 2, High: 2}},
		{2, rpcmsg.Auth{Flavor: 6}, rpcmsg.Reply{Outcome: rpcmsg.AuthError, Why: uint32(vrpc.AuthRejectedCred)}},
		{2, rpcmsg.Auth{Flavor: 1, Body: []byte{1}}, rpcmsg.Reply{Outcome: rpcmsg.AuthError, Why: uint32(vrpc.AuthBadCred)}},
		{2, rpcmsg.Auth{}, rpcmsg.Reply{}},
	} {
		h := rpcmsg.Call{XID: 99, Program: everyxdr.EVERYPROG, Version: 1, Cred: q.cred}
		b, err := xdr.Append(make([]byte, rpcrecord.MarkLen), &h)
		if err != nil {
			t.Fatal(err)
		}
		rpcrecord.Mark(b, len(b)-rpcrecord.MarkLen)
		b[rpcrecord.MarkLen+11] = byte(q.version)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		in, err := r.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got rpcmsg.Reply
		if err := xdr.Unmarshal(in, &got); err != nil {
			t.Fatal(err)
		}
		if q.want.XID = 99; !cmp.Equal(got, q.want, cmp.Comparer(bytes.Equal)) {
			t.Errorf("version %d, %v: %+v", q.version, q.cred, got)
		}
	}
}

// A procedure gets the caller's credentials, and a server may refuse by them.
func TestCredentials(t *testing.T) {
	s := serve(t, func(ctx context.Context, _ []byte) ([]byte, error) {
		p, ok := vrpc.PeerOf(ctx)
		if !ok || p.Sys == nil || p.Addr == nil {
			return nil, nil
		}
		return []byte(fmt.Sprint(p.Sys.Machine, p.Sys.UID, p.Sys.GID, p.Sys.GIDs)), nil
	}, vrpc.WithAllow(func(ctx context.Context, v *vrpc.Service, proc uint32) error {
		if p, _ := vrpc.PeerOf(ctx); p.Sys != nil && p.Sys.UID == 13 && v.Version == bytesVers && proc > 0 {
			return errors.New("not you")
		}
		return nil
	}))
	everywhere(t, func(t *testing.T, network string) {
		for uid, want := range map[uint32]string{0: "", 5: "here5 6 [7 8]", 13: ""} {
			var opts []vrpc.ClientOption
			if uid > 0 {
				opts = append(opts, vrpc.WithAuthSys(vrpc.AuthSys{Machine: "here", UID: uid, GID: 6, GIDs: []uint32{7, 8}}))
			}
			c := s.dial(t, network, opts...)
			for range 2 {
				b, err := callBytes(t.Context(), c, []byte("x"))
				var auth *vrpc.AuthError
				if refused := errors.As(err, &auth) && auth.Stat == vrpc.AuthTooWeak; string(b) != want || refused != (uid == 13) {
					t.Errorf("%d: %q, %v", uid, b, err)
				}
			}
			if err := everyxdr.NewEveryversClient(c).Null(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	if _, err := vrpc.Dial(t.Context(), "tcp", s.tcp, vrpc.WithAuthSys(vrpc.AuthSys{GIDs: make([]uint32, 17)})); !errors.Is(err, xdr.ErrTooLong) {
		t.Errorf("17 groups: %v", err)
	}
	if _, err := vrpc.Dial(t.Context(), "ip", s.tcp); err == nil {
		t.Error("dialled a network that is none")
	}
}

// Posted calls run in their order and get no reply.
func TestPost(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "vmmc", "stream"} {
		s := serve(t, echo, vrpc.InOrder())
		c := s.dial(t, network)
		const n = 3000
		for i := range uint32(n) {
			if err := c.Post(t.Context(), everyxdr.EVERYPROG, 2, everyxdr.EVERYPROC_PUT, put(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := everyxdr.NewEveryversManyClient(c).Put(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		s.two.mu.Lock() // the race detector does not know that the reply came after it
		defer s.two.mu.Unlock()
		if len(s.two.put) != n+1 {
			t.Fatalf("%d calls ran", len(s.two.put))
		}
		for i, v := range s.two.put[:n] {
			if v != uint32(i+1) {
				t.Fatalf("call %d is %d", i, v)
			}
		}
	}
}

// put is the arguments of PUT.
type put uint32

func (p put) EncodeXDR(e *xdr.Encoder) {
	e.Uint32(uint32(p))
	e.Opaque(nil, 0)
}

// A call that is given up ends at once; the client is as good as before, also if it was the server
// that did not read.
func TestGiveUp(t *testing.T) {
	everywhere(t, func(t *testing.T, network string) {
		hold, entered := make(chan struct{}), make(chan struct{}, 100)
		s := serve(t, func(ctx context.Context, b []byte) ([]byte, error) {
			entered <- struct{}{}
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return b[:1], nil
		}, vrpc.WithConcurrency(4, 2), vrpc.WithServerArea(5<<20))
		c := s.dial(t, network)
		e := everyxdr.NewEveryversClient(c)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		const calls = 8 // two run, and the others fill the socket
		big := make([]byte, 60_000)
		if network != "udp" {
			big = make([]byte, 3<<20)
		}
		for range calls {
			wg.Go(func() {
				if _, err := callBytes(ctx, c, big); !errors.Is(err, context.Canceled) {
					t.Errorf("given up: %v", err)
				}
			})
		}
		<-entered
		cancel()
		wg.Wait()
		close(hold)
		if err := e.Null(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A server that dies in the middle of a call is an error, for all calls, and so is a client that is
// closed.
func TestServerDies(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "udp", "vmmc", "stream"} {
		t.Run(network, func(t *testing.T) {
			entered := make(chan struct{}, 4)
			s := serve(t, func(ctx context.Context, _ []byte) ([]byte, error) {
				entered <- struct{}{}
				<-ctx.Done()
				return nil, vrpc.ErrNoReply
			})
			c := s.dial(t, network, vrpc.WithRetry(5*time.Millisecond, 10*time.Second))
			e := everyxdr.NewEveryversClient(c)
			failed := make(chan error, 4)
			for range 4 {
				go func() {
					_, err := callBytes(context.Background(), c, nil)
					failed <- err
				}()
			}
			for range 4 {
				<-entered
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				if err := <-failed; !errors.Is(err, vrpc.ErrLost) {
					t.Error(err)
				}
			}
			if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			var e2 *vrpc.Error
			if err := e.Null(t.Context()); !errors.As(err, &e2) || e2.Program != everyxdr.EVERYPROG ||
				!errors.Is(err, vrpc.ErrClosed) && !errors.Is(err, vrpc.ErrLost) {
				t.Error(err)
			}
		})
	}
}

// A server that answers nonsense is an error.
func TestBadServer(t *testing.T) {
	for name, say := range map[string][]byte{
		"huge":   {0xff, 0xff, 0xff, 0xff},
		"short":  {0x80, 0, 0, 1, 7},
		"silent": {},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			c, err := vrpc.NewClient(here)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go func() {
				_, _ = io.ReadFull(there, make([]byte, 44))
				_, _ = there.Write(say)
				_ = there.Close()
			}()
			if err := c.Call(t.Context(), 1, 1, 0, xdr.Void{}, xdr.Void{}); !errors.Is(err, vrpc.ErrLost) {
				t.Error(err)
			}
		})
	}
}

package vrpc_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// Children: a client of a server that is at the given place, and a server.
func init() {
	testutil.RegisterRole("client", func() int { return role(client) })
	testutil.RegisterRole("server", func() int { return role(server) })
}

func role(f func(ctx context.Context, args []string) error) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := f(ctx, testutil.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// place is the arguments of a client: of which kind it is, network, and address or the server's
// process.
func (s *served) place(kind, network string) []string {
	if network == "vmmc" {
		return []string{kind, network, s.node.Socket(), s.p.Node().String(), fmt.Sprint(s.p.PID())}
	}
	return []string{kind, network, s.address(network)}
}

func client(ctx context.Context, args []string) error {
	kind, network, at := args[0], args[1], args[2:]
	dial := func() (*vrpc.Client, error) { return vrpc.Dial(ctx, network, at[0]) }
	if network == "vmmc" {
		p, err := vmmc.Open(ctx, vmmc.WithSocket(at[0]))
		if err != nil {
			return err
		}
		defer p.Close()
		node, nerr := p.NameToNode(at[1])
		pid, perr := strconv.Atoi(at[2])
		if err := errors.Join(nerr, perr); err != nil {
			return err
		}
		server := vmmc.ProcessID{Node: node, PID: vmmc.PID(pid)}
		dial = func() (*vrpc.Client, error) { return vrpc.DialVMMC(ctx, p, server, vrpc.Meeting) }
	}
	for {
		err := do(ctx, kind, dial)
		if kind != "held" || !errors.Is(err, vrpc.ErrLost) {
			return err
		}
		// The place of the one before is given back when its procedure has returned.
	}
}

func do(ctx context.Context, kind string, dial func() (*vrpc.Client, error)) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if kind == "held" {
		_, err := callBytes(ctx, c, []byte(kind))
		return err
	}
	return script(ctx, c, os.Stdout)
}

// script calls all kinds of procedures and prints what came of them, which is the same by all
// transports.
func script(ctx context.Context, c vrpc.Caller, w io.Writer) error {
	b, err := callBytes(ctx, c, []byte("together"))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n", b)
	one, two := everyxdr.NewEveryversClient(c), everyxdr.NewEveryversManyClient(c)
	fmt.Fprintln(w, "null", one.Null(ctx))
	for i := range 20 {
		n := int32(-i)
		v := &everyxdr.Every{Text: strings.Repeat("t", i), Var: make([]byte, i%11), Few: make([]int32, i%7), Perhaps: &everyxdr.Point{X: n}}
		v.One.I, v.One.H, v.One.D, v.One.B, v.Number = n, int64(i)<<40, float64(i)/3, i%2 == 0, &n
		back, err := one.Echo(ctx, v)
		if err != nil {
			return err
		}
		sum, err := xdr.Marshal(back)
		if err != nil {
			return err
		}
		more, err := two.Add(ctx, int32(-i), int64(i)<<33)
		fmt.Fprintf(w, "%x %d %v\n", sha256.Sum256(sum), more, err)
	}
	for _, n := range []int{0, 1, 239, 241, 4095, 4096, 60_000} {
		b, err := callBytes(ctx, c, bytes.Repeat([]byte{byte(n)}, n))
		fmt.Fprintf(w, "%d: %x %v\n", n, sha256.Sum256(b), err)
	}
	_, paint := one.Paint(ctx, everyxdr.RED)
	_, move := two.Move(ctx, &everyxdr.Point{}, 0, "")
	for _, err := range []error{
		paint, move,
		c.Call(ctx, everyxdr.EVERYPROG+1, 1, 0, xdr.Void{}, xdr.Void{}),
		c.Call(ctx, everyxdr.EVERYPROG, 9, 0, xdr.Void{}, xdr.Void{}),
		c.Call(ctx, everyxdr.EVERYPROG, 1, everyxdr.EVERYPROC_ECHO, xdr.Void{}, xdr.Void{}),
	} {
		var e *vrpc.Error
		if !errors.As(err, &e) {
			return fmt.Errorf("not refused: %w", err)
		}
		fmt.Fprintln(w, e.Procedure, e.Err)
	}
	return nil
}

// One server answers three clients at once, each in a process of its own and by another transport,
// and all get the same.
func TestThreeClients(t *testing.T) {
	networks := []string{"udp", "tcp", "vmmc"}
	var all sync.WaitGroup
	all.Add(len(networks))
	s := serve(t, func(_ context.Context, b []byte) ([]byte, error) {
		if string(b) == "together" {
			all.Done()
			all.Wait() // until each has called
		}
		return b, nil
	})
	outs := make([]bytes.Buffer, len(networks))
	var ran sync.WaitGroup
	for i, network := range networks {
		cmd := testutil.Command(t, "client", s.place("script", network)...)
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ran.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s: %v", network, err)
			}
		})
	}
	ran.Wait()
	for i, network := range networks {
		if n := strings.Count(outs[i].String(), "\n"); n != 1+1+20+7+5 {
			t.Errorf("%s: %d lines\n%s", network, n, &outs[i])
		}
		if got, want := outs[i].String(), outs[0].String(); got != want {
			t.Errorf("%s:\n%swant what %s has:\n%s", network, got, networks[0], want)
		}
	}
}

// A client that is killed while its call runs has its procedure told, and leaves its place to the
// next.
func TestKilledClient(t *testing.T) {
	running, told := make(chan struct{}), make(chan struct{})
	s := serve(t, func(ctx context.Context, b []byte) ([]byte, error) {
		if string(b) == "held" {
			running <- struct{}{}
			<-ctx.Done()
			told <- struct{}{}
		}
		return b, ctx.Err()
	}, vrpc.WithConnections(1))
	for _, network := range []string{"tcp", "vmmc"} {
		for range 3 {
			cmd := testutil.Command(t, "client", s.place("held", network)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-running
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			<-told
		}
	}
	for {
		c, err := vrpc.DialVMMC(t.Context(), s.process(t), s.p.ID(), vrpc.Meeting)
		if errors.Is(err, vrpc.ErrLost) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if b, err := callBytes(t.Context(), c, []byte("x")); err != nil || string(b) != "x" {
			t.Errorf("%q, %v", b, err)
		}
		return
	}
}

// server serves one program by remote memory, and says where, and which calls have come.
func server(ctx context.Context, args []string) error {
	p, err := vmmc.Open(ctx, vmmc.WithSocket(args[0]))
	if err != nil {
		return err
	}
	s := vrpc.NewServer(vrpc.WithServerArea(1 << 20))
	if err := s.Register(bytesService(func(ctx context.Context, b []byte) ([]byte, error) {
		fmt.Println("call")
		<-ctx.Done()
		return b, nil
	})); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(p.PID(), l.Addr())
	go func() { _ = s.Serve(l) }()
	return s.ServeVMMC(p, vrpc.Meeting)
}

// When a server is killed all calls of its clients fail at once, also those that wait for a part of
// its memory; and the client can be closed.
func TestKilledServer(t *testing.T) {
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, network := range []string{"tcp", "vmmc", "stream"} {
		t.Run(network, func(t *testing.T) {
			cmd := testutil.Command(t, "server", n.Socket())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			lines.Scan()
			var pid vmmc.PID
			var address string
			if _, err := fmt.Sscan(lines.Text(), &pid, &address); err != nil {
				t.Fatal(err)
			}
			var c *vrpc.Client
			switch network {
			case "tcp":
				c, err = vrpc.Dial(t.Context(), network, address)
			case "stream":
				c, err = vrpc.DialVMMC(t.Context(), p, vmmc.ProcessID{Node: p.Node(), PID: pid}, vrpc.Meeting, vrpc.WithExport(vmmc.Unmapped()))
			default:
				c, err = vrpc.DialVMMC(t.Context(), p, vmmc.ProcessID{Node: p.Node(), PID: pid}, vrpc.Meeting)
			}
			if err != nil {
				t.Fatal(err)
			}
			const calls = 5 // of which two have room, by remote memory
			ends := make(chan error, calls)
			for range calls {
				go func() {
					_, err := callBytes(context.Background(), c, make([]byte, 400_000))
					ends <- err
				}()
			}
			lines.Scan()
			lines.Scan() // two run
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for range calls {
				if err := <-ends; !errors.Is(err, vrpc.ErrLost) {
					t.Errorf("a call of a killed server: %v", err)
				}
			}
			if _, err := callBytes(t.Context(), c, nil); !errors.Is(err, vrpc.ErrLost) {
				t.Errorf("a call after that: %v", err)
			}
			_ = c.Close()
			_ = cmd.Wait()
		})
	}
}

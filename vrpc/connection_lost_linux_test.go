package vrpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vrpc"
)

func init() {
	testutil.RegisterRole("cut server", func() int { return role(cutServer) })
	testutil.RegisterRole("cut client", func() int { return role(cutClient) })
}

// silence is what the host of either end may be silent for, in these tests.
const silence = 2 * time.Second

// cutServer serves by TCP at an address and says what becomes of its calls. A call of "hold" lasts
// as long as its context, one of "answer" until there is a line of input.
func cutServer(ctx context.Context, args []string) error {
	in := bufio.NewScanner(os.Stdin)
	s := vrpc.NewServer(vrpc.WithServerSilence(silence))
	err := s.Register(bytesService(func(ctx context.Context, b []byte) ([]byte, error) {
		if string(b) == "answer" {
			fmt.Println("called")
			in.Scan()
			return b, nil
		}
		fmt.Println("called")
		<-ctx.Done()
		fmt.Println("ended")
		return nil, ctx.Err()
	}))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Println("serving")
	return s.Serve(l)
}

// cutClient makes a call of each of the arguments, and one more when it gets a line of input,
// without a deadline, and says how they end.
func cutClient(ctx context.Context, args []string) error {
	c, err := vrpc.Dial(ctx, "tcp", args[0], vrpc.WithSilence(silence))
	if err != nil {
		return err
	}
	defer c.Close()
	var calls sync.WaitGroup
	call := func(what string) {
		calls.Go(func() {
			_, err := callBytes(ctx, c, []byte(what))
			fmt.Println(what, errors.Is(err, vrpc.ErrLost), err)
		})
	}
	for _, what := range args[1:] {
		call(what)
	}
	if bufio.NewScanner(os.Stdin).Scan() {
		call("late")
	}
	calls.Wait()
	return nil
}

// cutEnd is one end's process.
type cutEnd struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func startCutEnd(t *testing.T, ns *testutil.NS, name string, args ...string) *cutEnd {
	t.Helper()
	e := &cutEnd{cmd: ns.Enter(testutil.Command(t, name, args...)), lines: make(chan string, 100)}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if e.in, err = e.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	e.cmd.Stderr = os.Stderr
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(e.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			e.lines <- s.Text()
		}
	})
	t.Cleanup(func() {
		_ = e.in.Close()
		_ = e.cmd.Process.Kill()
		_ = e.cmd.Wait()
		reading.Wait()
	})
	return e
}

// expect waits for a line that begins so. The bound is many times what it takes, and less than what
// the system would take.
func (e *cutEnd) expect(t *testing.T, want string) {
	t.Helper()
	select {
	case line, ok := <-e.lines:
		if !ok || len(line) < len(want) || line[:len(want)] != want {
			t.Fatalf("%q, wanted %s", line, want)
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("nothing for a minute, wanted %s", want)
	}
}

// When the network between a client and a server is cut, the client's calls end as lost though they
// have no deadline, and the server ends the client's procedures: whether nothing is sent, or either
// end sends something that is not acknowledged.
func TestNetworkIsCut(t *testing.T) {
	for _, c := range []struct {
		name, first string
		late        bool // the client makes a call after the cut
		answer      bool // the server answers one after the cut
	}{
		{name: "nothing is sent", first: "hold"},
		{name: "a call is sent", first: "hold", late: true},
		{name: "a reply is sent", first: "answer", answer: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			net := testutil.NewNet(t, 2)
			at := net[0].Addr + ":700"
			server := startCutEnd(t, net[0], "cut server", at)
			server.expect(t, "serving")
			client := startCutEnd(t, net[1], "cut client", at, c.first, "hold")
			server.expect(t, "called")
			server.expect(t, "called")
			if out, err := net[0].Command("ip", "link", "set", "eth0", "down").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			calls := 2
			if c.late {
				calls++
				_, _ = io.WriteString(client.in, "\n")
			}
			_ = client.in.Close()
			if c.answer {
				_, _ = io.WriteString(server.in, "\n")
			}
			for range calls {
				select {
				case line, ok := <-client.lines:
					var what string
					var lost bool
					if _, err := fmt.Sscan(line, &what, &lost); !ok || err != nil || !lost {
						t.Fatalf("the client's call: %q", line)
					}
				case <-time.After(60 * time.Second):
					t.Fatal("the client's calls have waited for a minute")
				}
			}
			server.expect(t, "ended")
			if !c.answer {
				server.expect(t, "ended")
			}
		})
	}
}

// A server that takes no more calls for a while, and acknowledges all the same, keeps its clients.
func TestBusyServerKeepsItsClients(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, func(_ context.Context, b []byte) ([]byte, error) {
		<-release
		return b[:1], nil
	}, vrpc.WithConcurrency(1, 1))
	const silence = 500 * time.Millisecond
	c := s.dial(t, "tcp", vrpc.WithSilence(silence))
	var calls sync.WaitGroup
	for range 8 { // more than the sockets have room for
		calls.Go(func() {
			if _, err := callBytes(t.Context(), c, make([]byte, 3<<20)); err != nil {
				t.Error(err)
			}
		})
	}
	time.AfterFunc(5*silence, func() { close(release) })
	calls.Wait()
}

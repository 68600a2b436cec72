package vrpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
)

func init() { testutil.RegisterRole("narrow", func() int { return role(narrow) }) }

// narrow is a server whose links hold only what sockets do.
func narrow(ctx context.Context, args []string) error {
	p, err := vmmc.Open(ctx, vmmc.WithSocket(args[0]))
	if err != nil {
		return err
	}
	s := vrpc.NewServer(vrpc.WithServerArea(16<<20), vrpc.WithServerExport(vmmc.Unmapped()))
	if err := s.Register(bytesService(func(_ context.Context, b []byte) ([]byte, error) { return b[:1], nil })); err != nil {
		return err
	}
	fmt.Println(p.PID())
	return s.ServeVMMC(p, vrpc.Meeting)
}

// A call ends with its context while others wait for a server that is stopped.
func TestCallsOfAStoppedServer(t *testing.T) {
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
	cmd := testutil.Command(t, "narrow", n.Socket())
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
	if _, err := fmt.Sscan(lines.Text(), &pid); err != nil {
		t.Fatal(err)
	}
	c, err := vrpc.DialVMMC(t.Context(), p, vmmc.ProcessID{Node: p.Node(), PID: pid}, vrpc.Meeting)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := callBytes(t.Context(), c, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 3)
	for _, n := range []int{4 << 20, 4 << 20, 5} {
		go func() {
			_, err := callBytes(context.Background(), c, make([]byte, n))
			over <- err
		}()
		time.Sleep(100 * time.Millisecond) // so that one most likely waits in the middle of its sending
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	done := make(chan error, 1)
	go func() {
		_, err := callBytes(ctx, c, []byte("y"))
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want %v", err, context.DeadlineExceeded)
		}
	case <-time.After(10 * time.Second):
		t.Error("a call has not returned 10 s after its context ended")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	for range cap(over) {
		if err := <-over; err == nil {
			t.Error("a call to a killed server was answered")
		}
	}
	_ = c.Close()
	_ = cmd.Wait()
}

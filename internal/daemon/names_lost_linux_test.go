package daemon

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// connected returns the ends of a connection between a daemon and a process that answers by h.
func connected(t *testing.T, h nodeproto.Handler) (daemon, process *nodeproto.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*nodeproto.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = nodeproto.NewConn(c.(*net.UnixConn), h)
		t.Cleanup(func() {
			ends[i].Close()
			<-ends[i].Done()
		})
	}
	return ends[0], ends[1]
}

// A process that has no room for the request learns that it has lost a name when it has room, unless
// it has claimed the name again.
func TestLostNameIsToldAgain(t *testing.T) {
	var full atomic.Bool
	var refused, told atomic.Int32
	node, _ := connected(t, func(context.Context, nodeproto.Method, []byte, []int) (any, []int, error) {
		if full.Load() && refused.Add(1) < 3 {
			return nil, nil, code.New(code.NoMem, "more than 4096 requests of one process at a time")
		}
		told.Add(1)
		return nodeproto.Empty{}, nil, nil
	})
	tell := func(lost bool) {
		t.Helper()
		full.Store(true)
		refused.Store(0)
		testutil.Within(t, "telling a process of its name", minLostPause*3, func() {
			if err := tellLost(t.Context(), node, nodeproto.LoseNameRequest{}, func() bool { return lost }); err != nil {
				t.Errorf("a process that has room the third time: %v", err)
			}
		})
	}
	tell(true)
	if told.Load() != 1 {
		t.Errorf("the process was told %d times, want once", told.Load())
	}
	tell(false)
	if told.Load() != 1 {
		t.Error("the process was told of a name that it has again")
	}
}

// A process that has gone is not told again.
func TestLostNameOfAProcessThatIsGone(t *testing.T) {
	begun := make(chan struct{})
	node, process := connected(t, func(ctx context.Context, _ nodeproto.Method, _ []byte, _ []int) (any, []int, error) {
		close(begun)
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	go func() {
		<-begun
		process.Close()
	}()
	testutil.Within(t, "telling a process that goes", 0, func() {
		if err := tellLost(t.Context(), node, nodeproto.LoseNameRequest{}, func() bool { return true }); err == nil {
			t.Error("a process that has gone has taken a request")
		}
	})
}

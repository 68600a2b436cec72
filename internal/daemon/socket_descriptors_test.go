package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// A connection takes no descriptors before the daemon has taken it on: they would be the daemon's
// to close if it refuses the connection. Its other end waits until then to send them.
func TestConnectionsTakeNoDescriptorsEarly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.hangUp(); s.unlock() })
	dial := func() *net.UnixConn {
		c, err := nodeproto.Dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	accept := func() *net.UnixConn {
		c, err := s.l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	rights := unix.Rights([]int{int(null.Fd())})
	strange := dial()
	_, _, err = strange.WriteMsgUnix([]byte{1}, rights, nil)
	testutil.Require(t, err != nil,
		"the kernel has no SO_PASSRIGHTS for unix sockets: before Linux 6.16")
	if !errors.Is(err, syscall.EPERM) {
		t.Errorf("before it is accepted: %v", err)
	}
	far := accept()
	if _, _, err := strange.WriteMsgUnix([]byte{1}, rights, nil); !errors.Is(err, syscall.EPERM) {
		t.Errorf("before it is taken on: %v", err)
	}
	nodeproto.HangUp(far)
	c := nodeproto.NewDialledConn(dial(), nil)
	came := make(chan int, 1)
	asked := make(chan error, 1)
	go func() {
		_, err := c.Call(t.Context(), nodeproto.Register, nodeproto.Empty{}, []int{int(null.Fd())}, nil)
		asked <- err
	}()
	far = accept()
	l := nodeproto.NewBoundedConn(far, 100, nil, func(_ context.Context, _ nodeproto.Method, _ []byte,
		fds []int,
	) (any, []int, error) {
		came <- len(fds)
		foreign.Close(fds...)
		return nodeproto.Empty{}, nil, nil
	})
	if err := <-asked; err != nil || <-came != 1 {
		t.Errorf("a connection that is taken on: %v", err)
	}
	for _, end := range []*nodeproto.Conn{c, l} {
		end.Close()
		<-end.Done()
	}
}

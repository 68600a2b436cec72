package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// What is left counts what processes will bring, and what is above a low number that was free
// again.
func TestDescriptorsLeft(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	there := int(f.Fd())
	limit := 48 + 2*there
	d := descriptorBudget{limit: limit, lowestOther: limit}
	var came []func()
	take := func(want headroom, holds int) (n int) {
		for {
			letGo := d.reserveFor(heldByMember)
			left := d.headroomAfter(f)
			letGo()
			if left != want {
				return n
			}
			if n++; n > limit {
				t.Fatalf("%d are held of %d, and that makes no difference", d.held, limit)
			}
			came = append(came, d.reserveFor(holds))
		}
	}
	free := func() int { return limit - there - d.held }
	if n := take(plenty, heldByMember); n == 0 || free() < d.reserve() ||
		free() >= d.reserve()+heldByMember {
		t.Errorf("%d processes are there, and leave %d descriptors of %d; %d are kept", n, free(), limit,
			d.reserve())
	}
	if n := take(reserveOnly, heldByRefused); n == 0 || free() < d.reserve()/2 {
		t.Errorf("%d processes are told, and leave %d descriptors of %d; %d are kept", n, free(), limit,
			d.reserve())
	}
	for _, letGo := range came {
		letGo()
		letGo() // only once
	}
	if d.held != 0 || d.headroomAfter(f) != plenty {
		t.Errorf("%d are held, by no process", d.held)
	}
}

// One user cannot have all connections, and what one user has is not taken from another one.
func TestConnectionsOfAUser(t *testing.T) {
	d := descriptorBudget{limit: 1000}
	const one, two = 4711, 4712
	var leave []func()
	for {
		l, ok := d.admitUser(one)
		if !ok {
			break
		}
		if leave = append(leave, l); len(leave) > d.limit {
			t.Fatal("a user may have any number of connections")
		}
	}
	if n := len(leave) * heldByMember; n != d.limit/2 {
		t.Errorf("the connections of one user hold %d descriptors of %d, want half", n, d.limit)
	}
	for name, uid := range map[string]uint32{
		"another user": two, "root": 0, "the node's own user": uint32(os.Getuid()),
	} {
		if l, ok := d.admitUser(uid); !ok {
			t.Errorf("%s has no connection left", name)
		} else {
			l()
		}
	}
	leave[0]()
	leave[0]() // only once
	if _, ok := d.admitUser(one); !ok {
		t.Error("a connection that has ended is counted")
	}
	if _, ok := d.admitUser(one); ok {
		t.Error("a connection that has ended was counted twice as such")
	}
	for _, l := range leave {
		l()
	}
	// What is slow to close counts as long as it is open, also connections that have ended.
	from := foreign.User(two)
	defer from.Release()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var parked []int
	for range d.limit / 2 {
		fd, err := unix.Borrow(r)
		if err != nil {
			t.Fatal(err)
		}
		parked = append(parked, fd)
	}
	from.Took(parked...)
	if _, ok := d.admitUser(two); ok {
		t.Error("a user has a connection beside half of the descriptors")
	}
	if _, ok := d.admitUser(one); !ok {
		t.Error("another user's descriptors are counted")
	}
	foreign.Close(parked...)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if l, ok := d.admitUser(two); ok {
				l()
			}
		})
	}
	wg.Wait()
	if n := d.users[two]; n != 0 {
		t.Errorf("%d connections of a user are left that has none", n)
	}
}

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
	l := nodeproto.NewBoundedConn(far, 100, func(_ context.Context, _ nodeproto.Method, _ []byte,
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

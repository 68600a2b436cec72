package link

import (
	"net"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// socketSendBuffer is how much a socket takes, as the kernel counts.
func socketSendBuffer(t *testing.T, fd int) int {
	t.Helper()
	n, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hasLowRTTBuffer says whether what is in flight on a connection is bounded.
func (s *stream) hasLowRTTBuffer(t *testing.T) bool {
	t.Helper()
	fd, far, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(fd), unix.Close(far) }()
	unix.BoundSend(fd, lowRTTSendBuffer) // which the kernel may bound to less
	s.rmu.Lock()
	defer s.rmu.Unlock()
	return socketSendBuffer(t, s.fd) == socketSendBuffer(t, fd)
}

// What is in flight to a near end is bounded at both ends, on the first connection of a link and on
// the next one.
func TestSendBufferAtLowRTT(t *testing.T) {
	first, next := false, false
	for range 20 { // a handshake that was interrupted looks like one with an end that is far
		b := bridged(t, t, Terms{}, []*Target{{Handle: 1, Mem: memory(t, 4096), Write: true}}, faults{there: []simnet.Fault{{At: 1000, Kind: simnet.Cut}}})
		near := func() bool { return b.out.hasLowRTTBuffer(t) && b.in.hasLowRTTBuffer(t) }
		first = first || near()
		for range 20 {
			if _, err := b.out.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 100)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.out.WaitApplied(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, resumed := b.out.ConnStats(); resumed != 1 {
			t.Fatalf("the link was resumed %d times", resumed)
		}
		next = next || near()
		b.close()
		if first && next {
			return
		}
	}
	t.Errorf("of 20 links of this machine with itself one at least has a bounded first connection: %v, and a bounded next one: %v", first, next)
}

// What has no round trip is not bounded.
func TestSendBufferWithoutRTT(t *testing.T) {
	_, fd, _ := halfLink(t)
	defer func() { _ = unix.Close(fd) }()
	s := stream{fd: fd}
	before := socketSendBuffer(t, fd)
	if s.tx.tuneForRTT(s.fd); socketSendBuffer(t, fd) != before {
		t.Error("a socket that is no TCP socket is bounded")
	}
}

// What is sent to a near end is not held back by timers; whatever else a congestion control does,
// it goes on doing.
func TestUnpacedAtLowRTT(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for was, is := range map[string]string{"bbr": "reno", "cubic": "cubic", "reno": "reno"} {
		t.Run(was, func(t *testing.T) { unpaced(t, l.Addr().String(), was, is) })
	}
}

func unpaced(t *testing.T, to, was, is string) {
	for range 20 { // a handshake that was interrupted looks like one with an end that is far
		var refused error
		d := net.Dialer{Control: func(_, _ string, rc syscall.RawConn) error {
			return rc.Control(func(fd uintptr) {
				refused = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, was)
			})
		}}
		c, err := d.DialContext(t.Context(), "tcp", to)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.TakeOver(c.(*net.TCPConn))
		if err != nil {
			t.Fatal(err)
		}
		before := socketSendBuffer(t, fd)
		fresh, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		system := unix.Congestion(fresh)
		_ = syscall.Close(fresh)
		s := stream{fd: fd}
		s.tx.tuneForRTT(s.fd)
		near, now := socketSendBuffer(t, fd) != before, unix.Congestion(fd)
		_ = unix.Close(fd)
		testutil.Require(t, refused == nil, "needs a kernel that has TCP's congestion control "+was+", and that this user may choose it")
		if near && now != is || !near && now != was && (was != "reno" || now != system) { // which may have begun so for want of knowing how far it goes
			t.Errorf("near: %v: what was %s is %s, want %s where it is near", near, was, now, is)
		}
		if near {
			return
		}
	}
	t.Error("of 20 connections of this machine with itself none is near")
}

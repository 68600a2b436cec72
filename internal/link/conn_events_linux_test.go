package link

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// A socket tells of something for ever that no receive call gives: here of timestamps of what was
// sent, which are in an error queue that no link reads. The link ends, where its engine would
// be woken for ever. One whose far end sends as many frames, each by itself, goes on.
func TestEventsThatDoNotClear(t *testing.T) {
	for name, unclear := range map[string]bool{"an error queue": true, "frames": false} {
		t.Run(name, func(t *testing.T) {
			near, far := tcpPair(t)
			if unclear {
				const timestamping, sent, software = 37, 1 << 1, 1 << 4 // SO_TIMESTAMPING, of each packet that is sent
				if err := syscall.SetsockoptInt(near, syscall.SOL_SOCKET, timestamping, sent|software); err != nil {
					t.Fatal(err)
				}
			}
			e, _ := engine(t)
			lost := make(chan error, 1)
			rq, err := NewRequester(e, near, nil, Terms{}, func(uint32, uint64, error) {}, func(err error) { lost <- err })
			if err != nil {
				t.Fatal(err)
			}
			rq.sendControl(wire.Header{Type: wire.Bell})
			if !unclear {
				for range 4 * maxEmptyEvents {
					before := heard(rq)
					sendRaw(t, far, wire.Header{Type: wire.Ack}, nil)
					for end := time.Now().Add(30 * time.Second); heard(rq) == before; runtime.Gosched() {
						if time.Now().After(end) {
							t.Fatal("the link receives nothing")
						}
					}
				}
				if err := rq.Err(); err != nil {
					t.Errorf("the link ended: %v", err)
				}
				return
			}
			select {
			case err := <-lost:
				if !errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "not there to receive") {
					t.Errorf("the link ended with %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the link goes on, and its engine is woken for ever")
			}
			if _, err := new(unix.IO).Recv(far, make([]byte, 100), nil); err != nil {
				t.Errorf("the connection broke before its far end had what was sent: %v", err)
			}
		})
	}
}

// heard is how often the link has received something.
func heard(rq *Requester) uint32 {
	rq.rmu.Lock()
	defer rq.rmu.Unlock()
	return rq.recvCount
}

// On one node only a unix socket is a link. A peer that holds a TCP socket too makes its closing
// slow, or its events never clear: it is refused at both ends, and closed apart.
func TestSocketsOfLocalLinks(t *testing.T) {
	for name, c := range map[string]struct {
		socket func(t *testing.T) int
		fits   bool
	}{
		"a unix socket": {func(t *testing.T) int {
			fd, far, err := unix.StreamPair()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Close(far) })
			return fd
		}, true},
		"a unix socket of packets": {func(t *testing.T) int {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Close(fds[1]) })
			return fds[0]
		}, false},
		"a TCP socket": {func(t *testing.T) int { return testutil.TCPSocket(t) }, false},
		"a TCP socket that lingers": {func(t *testing.T) int {
			fds, _ := testutil.LingeringSockets(t, 1)
			return fds[0]
		}, false},
	} {
		for _, exporter := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, exporter %v", name, exporter), func(t *testing.T) {
				a, pa := engine(t)
				b, pb := engine(t)
				importers, exporters := sharedPages(t, pa, pb)
				fd := c.socket(t)
				testutil.Within(t, "the link's beginning, and its end", 0, func() {
					var l interface{ Close() }
					var err error
					if exporter {
						importers.retire()
						l, err = NewResponder(b, fd, exporters, Terms{PeerName: t.Name()}, nil, nil, func(uint32) {}, func(error) {})
					} else {
						exporters.retire()
						l, err = NewRequester(a, fd, importers, Terms{PeerName: t.Name()}, func(uint32, uint64, error) {}, func(error) {})
					}
					if err == nil {
						l.Close()
					}
					if c.fits && err != nil || !c.fits && !errors.Is(err, ErrProtocol) {
						t.Errorf("a link over %s: %v", name, err)
					}
				})
			})
		}
	}
}

package link

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

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

package vrpc

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// keepAlive notices that the host of a TCP connection's peer is silent. The kernel asks it by
// keep-alives while nothing is sent. While something is sent it does not, and sends it again for a
// quarter of an hour: then the time since the last acknowledgement is looked at. TCP_USER_TIMEOUT
// would do so too, but it also ends connections of a peer that acknowledges and has no room, as a
// server does that is busy.
type keepAlive struct {
	raw     syscall.RawConn
	silence time.Duration
	lost    func(error)

	owed time.Time // when look first found something unacknowledged; zero: nothing is. For look alone.

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

// watchPeer calls lost once if the peer's host acknowledges nothing for so long. It returns nil
// where there is nothing to watch: a connection other than TCP, or no silence.
func watchPeer(c net.Conn, silence time.Duration, lost func(error)) *keepAlive {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = wrapped.NetConn()
	}
	t, ok := c.(*net.TCPConn)
	if !ok || silence <= 0 {
		return nil
	}
	// Half of the time without a word, then two questions: a host that is there acknowledges one of
	// them.
	_ = t.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: wholeSeconds(silence / 2), Interval: wholeSeconds(silence / 4), Count: 2,
	})
	raw, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	k := &keepAlive{raw: raw, silence: silence, lost: lost}
	k.mu.Lock()
	k.timer = time.AfterFunc(k.pause(), k.probe)
	k.mu.Unlock()
	return k
}

// wholeSeconds rounds up: keep-alives have no shorter unit.
func wholeSeconds(d time.Duration) time.Duration {
	return max((d + time.Second - 1).Truncate(time.Second), time.Second)
}

func (k *keepAlive) pause() time.Duration { return max(k.silence/4, 10*time.Millisecond) }

// probe ends the connection if something that was sent has not been acknowledged for too long.
func (k *keepAlive) probe() {
	var ago time.Duration
	err := k.raw.Control(func(fd uintptr) { ago = unix.Unacknowledged(int(fd)) })
	if err != nil {
		return // it is closed
	}
	if silent := k.silent(ago, time.Now()); silent >= k.silence {
		k.lost(fmt.Errorf("the peer's host has acknowledged nothing for %v", silent.Round(time.Millisecond)))
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ended {
		k.timer.Reset(k.pause())
	}
}

// silent is for how long the peer's host has owed an acknowledgement. ago is when the last one
// came, and 0 if none is owed. It does not count from before something was sent: after a pause that
// may be long ago.
func (k *keepAlive) silent(ago time.Duration, now time.Time) time.Duration {
	switch {
	case ago == 0:
		k.owed = time.Time{}
		return 0
	case k.owed.IsZero():
		k.owed = now
	}
	return min(ago, now.Sub(k.owed))
}

// stop ends the watch. It may be called more than once, also by lost.
func (k *keepAlive) stop() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	k.timer.Stop()
}

package nodeconn

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Delays between attempts to reconnect. A delay is an eighth of the time since the daemon ended, at
// most 25 ms in the first half minute, so that all processes are served soon after a restart; a
// longer absence costs less and less. A process that listens to the daemon's bell reconnects when
// it rings and polls rarely: a hundred processes that dial every few milliseconds take the CPU from
// the daemon that they wait for.
const (
	minReconnectDelay   = time.Millisecond
	shortReconnectDelay = 25 * time.Millisecond
	maxReconnectDelay   = 500 * time.Millisecond // after ten minutes, or while listening to the bell
	// how late a goroutine that waits for the bell notices Process.Close
	bellPollInterval = 100 * time.Millisecond
)

func reconnectDelay(away time.Duration) time.Duration {
	return min(max(away/8, minReconnectDelay), max(min(away/1200, maxReconnectDelay), shortReconnectDelay))
}

// Watch waits for the daemon's end, reports it, and reconnects to the next daemon, until the
// process is closed: ctx ends.
func (t *Conn) Watch(ctx context.Context, log *slog.Logger) {
	t.ctx, t.log = ctx, log
	for {
		c := t.conn.Load()
		<-c.Done()
		if t.ctx.Err() != nil {
			return
		}
		if t.outlivesDaemon() {
			t.setState(stateAway, nil, nil)
		} else {
			t.setState(stateClosed, nil, nil)
		}
		t.log.Info("the node's daemon has ended", "why", c.Err())
		t.Process.Gone(c.Err())
		if !t.outlivesDaemon() || !t.reconnect() {
			return
		}
		t.Process.Back()
	}
}

// reconnect retries until the process has a new connection. It reports false when the process is
// closed.
func (t *Conn) reconnect() bool {
	lostAt := time.Now()
	var refusedAt time.Time // why it may not
	for timeout.Sleep(t.ctx, minReconnectDelay); t.ctx.Err() == nil; {
		if t.tryReconnect(lostAt, &refusedAt) {
			t.log.Info("rejoined the node's daemon", "after", time.Since(lostAt))
			return true
		}
	}
	return false
}

// tryReconnect makes one attempt. After a failure it waits until the next attempt is worthwhile.
func (t *Conn) tryReconnect(lostAt time.Time, refusedAt *time.Time) bool {
	ctx, stop := context.WithTimeout(t.ctx, timeout.Control)
	defer stop()
	// The first dial is without the bell: a process at its descriptor limit has one descriptor
	// left, which the connection needs.
	s, dialErr := nodeproto.Dial(ctx, t.Socket)
	var bell *unix.Bell
	bellErr := errNoBell
	if dialErr != nil {
		if bell, bellErr = unix.HearBell(nodeproto.BellPath(t.Socket), t.daemonUID, 0); bellErr == nil {
			defer bell.Close()
			s, dialErr = nodeproto.Dial(ctx, t.Socket) // a daemon that comes later rings
		}
	}
	err := dialErr
	if err == nil {
		err = t.rejoin(ctx, s)
	}
	if err == nil || t.ctx.Err() != nil {
		return err == nil
	}
	pause := reconnectDelay(time.Since(lostAt))
	var no rejoinRefused
	refused := errors.As(err, &no)
	switch {
	case refused || dialErr == nil && errors.Is(err, code.NoDaemon):
		// The daemon gave a reason or hung up. At its connection limit it hangs up on the oldest
		// refused connections. A refused process that redialled at once would displace others that
		// have not received the reason yet, so both kinds wait. The reason stands for
		// timeout.Control; the bell then announces the next daemon.
		if refused {
			t.log.Debug("the daemon refused the rejoin", "err", err)
			t.setState(stateRefused, nil, err)
			*refusedAt = time.Now()
		} else if time.Since(*refusedAt) > timeout.Control {
			t.setState(stateAway, nil, nil)
		}
		pause = max(pause, min(time.Since(lostAt)/8, maxReconnectDelay))
		if bell == nil {
			if bell, bellErr = unix.HearBell(nodeproto.BellPath(t.Socket), t.daemonUID, 0); bellErr == nil {
				defer bell.Close()
			}
		}
	default:
		t.setState(stateAway, nil, nil)
		if dialErr != nil && bellErr == nil {
			pause = maxReconnectDelay
		}
	}
	pause = pause/2 + rand.N(pause/2+1) //nolint:gosec // not all processes of the node at once
	for over := time.Now().Add(pause); t.ctx.Err() == nil; {
		left := time.Until(over)
		if left <= 0 {
			break
		}
		if bellErr == nil {
			var rung bool
			if rung, bellErr = bell.Wait(min(left, bellPollInterval)); rung {
				break
			}
		} else {
			timeout.Sleep(t.ctx, left)
		}
	}
	return false
}

// errNoBell means that this attempt does not listen to the bell.
var errNoBell = errors.New("there is no bell")

// rejoinRefused is a refusal by a running daemon. Retrying soon does not help.
type rejoinRefused struct{ error }

func (r rejoinRefused) Unwrap() error { return r.error }

// Refused makes the error of a daemon that does not take the process back.
func (t *Conn) Refused(err error) error {
	return rejoinRefused{code.New(code.NoDaemon, "the daemon that now is at %s does not take this process back: %v", t.Socket, err)}
}

// rejoin registers this process on a new connection, which it takes over: it becomes the process's,
// or it is closed.
func (t *Conn) rejoin(ctx context.Context, s *net.UnixConn) error {
	// Exports and keys of links are for the user that had them before.
	daemon, err := unix.PeerCred(s)
	if err == nil && daemon.UID != t.daemonUID && daemon.UID != 0 {
		err = t.Refused(code.New(code.NoRights, "it is user %d's, and the one before was user %d's", daemon.UID, t.daemonUID))
	}
	if err != nil {
		_ = s.Close()
		return err
	}
	c := t.start(s)
	rejoined, err := t.Process.Rejoin(ctx, c)
	if err != nil || !t.setState(stateUp, c, nil) {
		c.Close()
		<-c.Done()
		return errors.Join(err, t.ctx.Err())
	}
	rejoined()
	return nil
}

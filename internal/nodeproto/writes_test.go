//go:build linux

package nodeproto

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// The other end of a connection reads nothing, and the socket is full: each call ends with its
// context, however many wait, and so does closing.
func TestCallsEndWhereNothingIsRead(t *testing.T) {
	const short = 50 * time.Millisecond
	a, _ := sockets(t)
	l := served(t, a, none)
	about := strings.Repeat("x", 16<<10)
	var all sync.WaitGroup
	full := make(chan struct{}) // closed when a call could not be written
	var once sync.Once
	for range 50 {
		all.Go(func() {
			testutil.Within(t, "a call", short, func() {
				ctx, stop := context.WithTimeout(t.Context(), short)
				defer stop()
				_, err := l.Call(ctx, Export, about, nil, nil)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a call that is not answered: %v", err)
				}
				if err != nil && strings.Contains(err.Error(), "takes nothing") {
					once.Do(func() { close(full) })
				}
			})
		})
	}
	all.Wait()
	select {
	case <-full:
	default:
		t.Fatal("the socket takes all calls: send more")
	}
	testutil.Within(t, "a call that is cancelled", 0, func() {
		ctx, stop := context.WithCancel(t.Context())
		defer time.AfterFunc(short, stop).Stop()
		if _, err := l.Call(ctx, Export, about, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that is cancelled: %v", err)
		}
	})
	over := make(chan error, 1)
	go func() {
		_, err := l.Call(t.Context(), Export, about, nil, nil)
		over <- err
	}()
	testutil.Within(t, "Close", 0, func() {
		l.Close()
		<-l.Done()
		if err := <-over; !errors.Is(err, code.NoDaemon) {
			t.Errorf("a call whose connection is closed: %v", err)
		}
	})
}

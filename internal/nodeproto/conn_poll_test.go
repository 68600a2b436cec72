//go:build linux

package nodeproto

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// awake has this program poll for answers: with one processor no goroutine does.
func awake(t testing.TB) {
	if was := runtime.GOMAXPROCS(0); was == 1 {
		runtime.GOMAXPROCS(2)
		t.Cleanup(func() { runtime.GOMAXPROCS(was) })
	}
}

// unreadConn is a connection without a reader: only the poller takes packets from it. read
// gives it one, to end as others do.
func unreadConn(t testing.TB, near, far Handler) (l, o *Conn, read func()) {
	t.Helper()
	awake(t)
	a, b := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	l = &Conn{
		c: a, handler: near, writing: semaphore.New(1), calls: map[uint64]chan answer{},
		serving: map[uint64]context.CancelFunc{},
		ctx:     ctx, cancel: cancel, done: make(chan struct{}),
	}
	read = sync.OnceFunc(func() { go l.read() })
	t.Cleanup(func() {
		l.Close()
		read()
		ended(t, l)
	})
	return l, served(t, b, far), read
}

// looks looks until it has seen what it waits for.
func (l *Conn) looks(t testing.TB, ch chan answer, seen func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !seen(); l.poll(ch) {
		if time.Now().After(end) {
			t.Fatal("it looks in vain")
		}
	}
}

// question is a call whose asker is the test.
func (l *Conn) question(t testing.TB, m Method) chan answer {
	t.Helper()
	ch := make(chan answer, 1)
	l.mu.Lock()
	l.next++
	id := l.next
	l.calls[id] = ch
	l.mu.Unlock()
	if err := l.write(header{kind: request, method: m, id: id}, Empty{}, nil); err != nil {
		t.Fatal(err)
	}
	return ch
}

// An answer comes whether its asker still looks for it, or sleeps.
func TestAskAwake(t *testing.T) {
	awake(t)
	for name, asleep := range map[string]bool{"at once": false, "when it sleeps": true} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			fd, w := pipe(t)
			var l *Conn
			begun := make(chan struct{})
			served(t, b, func(_ context.Context, _ Method, _ []byte, fds []int) (any, []int, error) {
				closeAll(fds)
				if <-begun; asleep {
					l.pollMu.Lock() // its holder polls; no goroutine does from here on
					defer l.pollMu.Unlock()
				}
				d, err := unix.Dup(fd)
				return Grant{Handle: 42}, []int{d}, err
			})
			l = served(t, a, none)
			close(begun)
			g, fds, err := AskPolling[Grant](t.Context(), l, Import, ImportRequest{}, []int{fd})
			if err != nil || g.Handle != 42 || len(fds) != 1 {
				t.Errorf("%+v with %d descriptors, %v", g, len(fds), err)
			}
			closeAll(append(fds, fd))
			testutil.PipeClosed(t, w)
		})
	}
}

// A caller that gives up polls no longer than others, and descriptors that come for it later are
// closed.
func TestAskAwakeIsGivenUp(t *testing.T) {
	awake(t)
	a, b := sockets(t)
	fd, w := pipe(t)
	served(t, b, func(ctx context.Context, m Method, _ []byte, _ []int) (any, []int, error) {
		if m != Import {
			return Empty{}, nil, nil
		}
		<-ctx.Done()
		return Empty{}, []int{fd}, nil
	})
	l := served(t, a, none)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := AskPolling[Empty](ctx, l, Import, Empty{}, nil); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
	testutil.PipeClosed(t, w)
	if _, _, err := AskPolling[Empty](t.Context(), l, Release, Empty{}, nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// A polling goroutine serves requests that arrive meanwhile: the answer may be waiting for that.
func TestLookingServes(t *testing.T) {
	var l, o *Conn
	fd, w := pipe(t)
	begun := make(chan struct{})
	l, o, _ = unreadConn(t, func(_ context.Context, m Method, _ []byte, fds []int) (any, []int, error) {
		if m != Offer || len(fds) != 1 {
			closeAll(fds)
			return nil, nil, code.New(code.BadArg, "method %d, %d descriptors", m, len(fds))
		}
		return Grant{Handle: 42}, fds, nil
	}, func(ctx context.Context, _ Method, _ []byte, _ []int) (any, []int, error) {
		<-begun
		g, fds, err := Ask[Grant](ctx, o, Offer, Empty{}, []int{fd})
		return g, fds, err
	})
	close(begun)
	ch := l.question(t, Import)
	l.looks(t, ch, func() bool { return len(ch) > 0 })
	a := <-ch
	g, err := Decode[Grant](a.body)
	if a.err != nil || err != nil || g.Handle != 42 || len(a.fds) != 1 {
		t.Errorf("%+v, %v, %v, %d descriptors", g, a.err, err, len(a.fds))
	}
	closeAll(append(a.fds, fd))
	testutil.PipeClosed(t, w)
}

// What it takes that others wait for reaches them.
func TestLookingTakesWhatOthersWaitFor(t *testing.T) {
	const others = 20
	had := make(chan struct{}, others)
	l, _, _ := unreadConn(t, none, func(ctx context.Context, m Method, body []byte, _ []int) (any, []int,
		error,
	) {
		if m == Import { // comes last
			for range others {
				select {
				case <-had:
				case <-ctx.Done():
				}
			}
			return Empty{}, nil, nil
		}
		r, err := Decode[ImportRequest](body)
		return Grant{Handle: r.ID}, nil, err
	})
	ch := l.question(t, Import)
	for i := range uint32(others) {
		go func() {
			if g, _, err := Ask[Grant](t.Context(), l, Export, ImportRequest{ID: i}, nil); err != nil ||
				g.Handle != i {
				t.Errorf("call %d: %+v, %v", i, g, err)
			}
			had <- struct{}{}
		}()
	}
	l.looks(t, ch, func() bool { return len(ch) > 0 })
	<-ch
}

// A polling goroutine sees that the connection has ended, by either side, and also within a packet.
func TestLookingEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(l, o *Conn)
		want string
	}{
		"by this end":  {func(l, _ *Conn) { l.Close() }, "use of closed network connection"},
		"by the other": {func(_, o *Conn) { o.Close() }, "EOF"},
		"by garbage":   {func(_, o *Conn) { _, _ = o.c.Write([]byte("garbage")) }, ErrPacket.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			// Else the end by the other would leave the question unread, which is a reset.
			begun := make(chan struct{})
			l, o, read := unreadConn(t, none, func(ctx context.Context, _ Method, _ []byte, _ []int) (any,
				[]int, error,
			) {
				close(begun)
				<-ctx.Done()
				return Empty{}, nil, nil
			})
			ch := l.question(t, Import)
			l.poll(ch)
			<-begun
			over := make(chan struct{})
			go func() { defer close(over); c.end(l, o) }()
			l.looks(t, ch, func() bool { return l.Err() != nil })
			<-over
			if err := l.Err(); !strings.Contains(err.Error(), c.want) {
				t.Errorf("it ended with %q, want %q in it", err, c.want)
			}
			read()
			ended(t, l)
			if a := <-ch; !errors.Is(a.err, code.NoDaemon) {
				t.Errorf("the call ended with %v", a.err)
			}
		})
	}
}

// A connection is not done before the requests are that a polling goroutine has taken.
func TestDoneWaitsForWhatWasTakenByLooking(t *testing.T) {
	for range 20 {
		var over atomic.Bool
		taken := make(chan struct{})
		l, o, read := unreadConn(t, func(ctx context.Context, _ Method, _ []byte, _ []int) (any, []int,
			error,
		) {
			close(taken)
			<-ctx.Done()
			for range 1000 {
				runtime.Gosched()
			}
			over.Store(true)
			return Empty{}, nil, nil
		}, none)
		go func() { _, _ = o.Call(t.Context(), Offer, Empty{}, nil, nil) }()
		l.looks(t, make(chan answer), func() bool {
			select {
			case <-taken:
				return true
			default:
				return false
			}
		})
		l.Close()
		read()
		ended(t, l)
		if !over.Load() {
			t.Fatal("a request goes on when the connection is done")
		}
	}
}

// Both ends ask and answer, some looking and some not, and then one leaves in the middle of it:
// each call has the answer that is its own, or hears that the other end is gone.
func TestManyAskAwake(t *testing.T) {
	awake(t)
	fd, w := pipe(t)
	echo := func(_ context.Context, _ Method, body []byte, fds []int) (any, []int, error) {
		r, err := Decode[ImportRequest](body)
		return Grant{Handle: r.ID}, fds, err
	}
	for round := range 6 {
		a, b := sockets(t)
		ends := []*Conn{served(t, a, echo), served(t, b, echo)}
		ask := func(l *Conn, id uint32) error {
			call := Ask[Grant]
			if id%2 == 0 {
				call = AskPolling[Grant]
			}
			g, fds, err := call(t.Context(), l, Import, ImportRequest{ID: id}, []int{fd})
			n := len(fds)
			closeAll(fds)
			if err == nil && (g.Handle != id || n != 1) {
				return fmt.Errorf("call %d has answer %d with %d descriptors", id, g.Handle, n)
			}
			return err
		}
		var all, most sync.WaitGroup
		for i := range uint32(12) {
			most.Add(1)
			all.Go(func() {
				l := ends[i/2%2]
				for k := range uint32(40) {
					if err := ask(l, i+12*k); err != nil {
						t.Error(err)
					}
				}
				most.Done()
				err := ask(l, i)
				for err == nil {
					err = ask(l, i)
				}
				if !errors.Is(err, code.NoDaemon) {
					t.Error(err)
				}
			})
		}
		most.Wait()
		ends[round%2].Close()
		all.Wait()
	}
	closeAll([]int{fd})
	testutil.PipeClosed(t, w)
}

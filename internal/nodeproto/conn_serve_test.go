//go:build linux

package nodeproto

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// servedInShare is served for a peer whose requests run in a share of one slot.
func servedInShare(t *testing.T, c *net.UnixConn, h Handler) *Conn {
	t.Helper()
	l := NewBoundedConn(c, 0, fairshare.New(1), h)
	t.Cleanup(func() {
		l.Close()
		ended(t, l)
	})
	return l
}

// until waits until the connection is in a state.
func (l *Conn) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		yes := is()
		l.mu.Unlock()
		if yes {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// The peer's replies and cancellations overtake its requests, which wait for their turn.
func TestRepliesPassQueuedRequests(t *testing.T) {
	const n, atOnce = 900, 100 // atOnce: more than the share queues before a connection holds requests
	a, b := sockets(t)
	var begun atomic.Int32
	block := make(chan struct{})
	server := servedInShare(t, b, func(ctx context.Context, _ Method, _ []byte, _ []int) (any, []int, error) {
		begun.Add(1)
		select {
		case <-block:
		case <-ctx.Done():
		}
		return Empty{}, nil, nil
	})
	client := served(t, a, none)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := client.Call(t.Context(), ListNames, Empty{}, nil, nil); err != nil {
				t.Errorf("a request that has queued: %v", err)
			}
		})
	}
	server.until(t, "all requests are read", func() bool { return len(server.serving) == n })
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		if _, err := client.Call(ctx, ListNames, Empty{}, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("a request that is cancelled in the queue: %v", err)
		}
	})
	var last incoming
	server.until(t, "a further request is held", func() bool {
		if q := server.held.queue; len(q) > 0 && q[len(q)-1].id == n+1 {
			last = q[len(q)-1]
			return true
		}
		return false
	})
	cancel()
	select {
	case <-last.ctx.Done():
	case <-time.After(bound):
		t.Error("the cancellation of a held request is not read")
	}
	if _, err := server.Call(t.Context(), Offer, Empty{}, nil, nil); err != nil {
		t.Errorf("a request to the peer: %v", err)
	}
	if got := int(begun.Load()); got > n-atOnce {
		t.Errorf("%d of %d requests had begun when the peer's reply was read", got, n)
	}
	close(block)
	testutil.Within(t, "the queued requests", 0, all.Wait)
}

// A peer that sends requests without end has few of them held, and all are answered.
func TestHeldRequestsAreBounded(t *testing.T) {
	const n = 400
	a, b := sockets(t)
	var server *Conn
	var most atomic.Int64
	block := make(chan struct{})
	server = servedInShare(t, b, func(context.Context, Method, []byte, []int) (any, []int, error) {
		<-block
		server.mu.Lock()
		defer server.mu.Unlock()
		most.Store(max(most.Load(), int64(server.held.bytes))) // under mu: no other handler stores
		return Empty{}, nil, nil
	})
	client := served(t, a, none)
	about := strings.Repeat("x", 16<<10)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := client.Call(t.Context(), ListNames, about, nil, nil); err != nil {
				t.Errorf("a request of many: %v", err)
			}
		})
	}
	server.until(t, "the held requests reach the bound", func() bool { return server.held.isFull() })
	close(block)
	testutil.Within(t, "the requests", 0, all.Wait)
	if got := most.Load(); got >= maxHeldBytes+MaxPacket {
		t.Errorf("%d bytes were held, at most %d and a packet", got, maxHeldBytes)
	}
	server.until(t, "nothing is held at the end", func() bool {
		return server.held.queue == nil && server.held.bytes == 0 && !server.held.feeding
	})
}

// A connection that ends drops what it holds, and closes the descriptors.
func TestHeldRequestsOfAnEndedConnection(t *testing.T) {
	a, b := sockets(t)
	block := make(chan struct{})
	server := servedInShare(t, b, func(_ context.Context, _ Method, _ []byte, fds []int) (any, []int, error) {
		closeAll(fds)
		<-block
		return Empty{}, nil, nil
	})
	client := served(t, a, none)
	const n = 300
	for range n {
		go func() { _, _ = client.Call(t.Context(), ListNames, Empty{}, nil, nil) }()
	}
	server.until(t, "the requests are read", func() bool { return len(server.serving) == n })
	fd, w := pipe(t)
	go func() {
		_, _ = client.Call(t.Context(), ListNames, Empty{}, []int{fd}, nil)
		closeAll([]int{fd})
	}()
	server.until(t, "a request with a descriptor is held", func() bool {
		q := server.held.queue
		return len(q) > 0 && len(q[len(q)-1].fds) == 1
	})
	client.Close()
	testutil.PipeClosed(t, w) // no request of the peer runs to its end before
	close(block)
	ended(t, server)
}

// A request that gives up its question to another process says so before it queues again.
func TestCancellationPassesTheQueue(t *testing.T) {
	const n = 900
	a, b := sockets(t)
	asked, cancelled := make(chan struct{}), make(chan struct{})
	served(t, b, func(ctx context.Context, _ Method, _ []byte, _ []int) (any, []int, error) {
		close(asked)
		<-ctx.Done()
		close(cancelled)
		return Empty{}, nil, nil
	})
	l := served(t, a, none)
	share := fairshare.New(1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	all.Add(1 + n)
	share.Begin(func(turn *fairshare.Turn) {
		defer all.Done()
		defer turn.End()
		_, err := l.Call(turn.Context(ctx), Offer, Empty{}, nil, nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a question that is given up: %v", err)
		}
	})
	<-asked
	var begun atomic.Int32
	end := make(chan struct{})
	for range n {
		share.Begin(func(turn *fairshare.Turn) {
			defer all.Done()
			defer turn.End()
			begun.Add(1)
			<-end
		})
	}
	stop()
	select {
	case <-cancelled:
	case <-time.After(bound):
		t.Error("the other end is not told that a question is given up")
	}
	if got := begun.Load(); got == n {
		t.Errorf("all of %d other requests had begun when the other end was told", got)
	}
	close(end)
	testutil.Within(t, "the requests", 0, all.Wait)
}

// The end of a connection does not wait for the requests of the user's other connections.
func TestEndOfAConnectionWithQueuedRequests(t *testing.T) {
	const n = 900
	a, b := sockets(t)
	share := fairshare.New(1)
	var all sync.WaitGroup
	var begun atomic.Int32
	end := make(chan struct{})
	all.Add(n)
	for range n { // of another connection
		share.Begin(func(turn *fairshare.Turn) {
			defer all.Done()
			defer turn.End()
			begun.Add(1)
			<-end
		})
	}
	server := NewBoundedConn(b, 0, share, none)
	client := served(t, a, none)
	fd, w := pipe(t)
	go func() {
		_, _ = client.Call(t.Context(), ListNames, Empty{}, []int{fd}, nil)
		closeAll([]int{fd})
	}()
	server.until(t, "the request is queued", func() bool { return len(server.queued) == 1 })
	client.Close()
	ended(t, server)
	if got := begun.Load(); got == n {
		t.Errorf("all of %d other requests had begun when the connection ended", got)
	}
	testutil.PipeClosed(t, w)
	close(end)
	testutil.Within(t, "the other requests", 0, all.Wait)
}

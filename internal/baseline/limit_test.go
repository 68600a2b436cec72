package baseline

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// both are the two sides of shared memory, here in one process.
func both(t *testing.T) (a, b *Memory) {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "memfd needs Linux")
	const size = 8192
	one, other, err := ShareMemory(size)
	if err != nil {
		t.Fatal(err)
	}
	open := func(fs []*os.File) *Memory {
		var fds [2]int
		for i, f := range fs {
			fds[i] = dup(t, f)
		}
		m, err := OpenMemory(fds[0], fds[1], size)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	a, b = open(one), open(other)
	if err := closeAll(one); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestMemory(t *testing.T) {
	a, b := both(t)
	ctx := t.Context()
	errs := make(chan error, 1)
	for _, c := range [][2]int{{4, 0}, {64, 0}, {64, 4096}, {8192, 0}} {
		size, off := c[0], c[1]
		go func() { errs <- b.Pong(ctx, make([]byte, size), off, 1, 20) }()
		n := 0
		if err := a.Ping(ctx, make([]byte, size), off, 1, 20, func(time.Duration) { n++ }); err != nil || n != 20 {
			t.Fatalf("%d bytes: %d answers, %v", size, n, err)
		}
		if v := shm.Word(b.In(), off+size-4).Load(); v != 20 {
			t.Errorf("%d bytes at %d: the last word is %d, want 20", size, off, v)
		}
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	go func() { errs <- b.Sleep(ctx, 64, 7) }()
	a.Put(make([]byte, 64), 0, 7)
	a.Wake(64)
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	for range 2 { // the second finds what the first left
		go func() {
			errs <- b.Follow(ctx, func() error { ready <- struct{}{}; return nil })
		}()
		<-ready
		if err := a.Settle(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	why := errors.New("enough")
	over, cancel := context.WithCancelCause(ctx)
	cancel(why)
	for name, err := range map[string]error{"await": a.Await(over, 4, 99), "sleep": a.Sleep(over, 4, 99), "reached": a.Reached(over, 4, 99)} {
		if !errors.Is(err, why) {
			t.Errorf("%s with its context: %v", name, err)
		}
	}
}

// joined are the two ends of a connection.
func joined(t *testing.T) (a, b *TCP) {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "raw sockets calls need Linux")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	x, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	y, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = NewTCP(x.(*net.TCPConn)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	if b, err = NewTCP(y.(*net.TCPConn)); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestTCP(t *testing.T) {
	a, b := joined(t)
	ctx := t.Context()
	errs := make(chan error, 1)
	pair := func(what string, far, near func() error) {
		t.Helper()
		go func() { errs <- far() }()
		if err := near(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := <-errs; err != nil {
			t.Fatalf("%s, far end: %v", what, err)
		}
	}
	n := 0
	pair("ping", func() error { return b.Pong(ctx, 8, 100, 10) },
		func() error { return a.Ping(ctx, 8, 100, 10, func(time.Duration) { n++ }) })
	if n != 10 {
		t.Errorf("%d answers of 10", n)
	}
	big := make([]byte, 3<<20)
	pair("sink", func() error { _, err := b.Sink(ctx, make([]byte, len(big)), 1, 2); return err }, func() error { return a.Pump(ctx, big, 3) })
	pair("swallow", func() error { return b.Swallow(ctx, 3*len(big)) }, func() error { return a.Pump(ctx, big, 3) })
	// Neither end reads before it writes more than the sockets hold.
	pair("both ways", func() error { _, err := b.Both(ctx, big, make([]byte, len(big)), 1, 2); return err },
		func() error { _, err := a.Both(ctx, big, make([]byte, len(big)), 1, 2); return err })
	pair("rest", func() error { return b.ReceiveBlocking(ctx, make([]byte, 9)) }, func() error { return a.Send(ctx, make([]byte, 9)) })
	looks := 0
	pair("look", func() error { return b.Send(ctx, make([]byte, 4)) },
		func() error { return a.Look(ctx, make([]byte, 4), func() { looks++ }) })
	if looks == 0 {
		t.Error("nothing was called before a look")
	}
	b.Close()
	if err := a.Receive(ctx, make([]byte, 1)); err == nil {
		t.Error("a connection that is closed gives a byte")
	}
}

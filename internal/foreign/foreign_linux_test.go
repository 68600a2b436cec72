package foreign_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// bound is for a loaded machine: what a hostile source delays is delayed for an hour.
const bound = time.Minute

// threads is how many this process has.
func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// pipe gives the end of a pipe that another source brings, and waits for its being closed.
func pipe(t *testing.T) (fd int, closed func()) {
	t.Helper()
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(p[0]), "pipe")
	return p[1], func() {
		t.Helper()
		defer r.Close()
		_ = r.SetReadDeadline(time.Now().Add(bound))
		if _, err := r.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("another source's descriptor is not closed")
		}
	}
}

// Whatever kind of file makes closing slow, only its source waits.
func TestSlowToClose(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, n int) (fds []int, free func()){
		"a TCP socket that lingers": func(t *testing.T, n int) ([]int, func()) { return testutil.LingeringSockets(t, n) },
		"such a socket in flight, in a socket of its sender": func(t *testing.T, n int) (fds []int, free func()) {
			sockets, free := testutil.LingeringSockets(t, n)
			for _, fd := range sockets {
				a, b, err := unix.StreamPair()
				if err != nil {
					t.Fatal(err)
				}
				var io unix.IO
				if n, ok, err := io.SendPassed(a, []byte{1}, fd); n != 1 || !ok || err != nil {
					t.Fatal(n, ok, err)
				}
				_, _ = syscall.Close(a), syscall.Close(fd)
				fds = append(fds, b)
			}
			return fds, free
		},
		"a file whose file system does not answer": func(t *testing.T, n int) (fds []int, free func()) {
			f := testutil.NewFUSE(t, false, testutil.FUSEFile{Name: "file", Mode: 0o600})
			for range n {
				fd, err := syscall.Open(filepath.Join(f.Dir, "file"), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				fds = append(fds, fd)
			}
			f.Hang("flush")
			return fds, f.Answer
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 50
			slow := foreign.From("slow: " + name)
			defer slow.Release()
			t.Cleanup(func() { // after those that let the sockets go
				s := foreign.From("slow: " + name)
				defer s.Release()
				ctx, stop := context.WithTimeout(context.Background(), bound)
				defer stop()
				if err := s.Wait(ctx, 1); err != nil {
					t.Errorf("%d descriptors stay open: %v", s.Held(), err)
				}
			})
			fds, free := make(t, n)
			slow.Took(fds...)
			before := threads(t)
			foreign.Close(fds...)
			for i := range 20 { // of others, and memory of the same one
				s := foreign.From(fmt.Sprint("quick ", i))
				fd, closed := pipe(t)
				s.Took(fd)
				foreign.Close(fd)
				closed()
				s.Release()
			}
			mem, err := unix.Memfd("test", 4096)
			if err != nil {
				t.Fatal(err)
			}
			slow.Took(mem)
			foreign.Close(mem)
			if unix.IsMemory(mem) {
				t.Error("memory waits for what is slow to close")
			}
			if held := slow.Held(); held != n {
				t.Errorf("%d descriptors are open, want %d", held, n)
			}
			if more := threads(t) - before; more > 10 {
				t.Errorf("closing takes %d threads", more)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
			defer stop()
			if err := slow.Wait(ctx, n); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("wait for what is slow to close: %v", err)
			}
			if slow.Receive(n, func() []int { return nil }) {
				t.Error("a source that has too many open goes on sending them")
			}
			free()
		})
	}
}

// Many slow sources take all goroutines that close, and no more than there may be. Connections of
// others end meanwhile, and give back their numbers.
func TestManySlowSources(t *testing.T) {
	const n = 100
	fds, _ := testutil.LingeringSockets(t, 2*n)
	before := threads(t)
	for i := range n {
		s := foreign.From(fmt.Sprint("slow ", i))
		s.Took(fds[2*i : 2*i+2]...)
		foreign.Close(fds[2*i : 2*i+2]...)
		s.Release()
	}
	if more := threads(t) - before; more > 80 {
		t.Errorf("closing takes %d threads", more)
	}
	for range 10 {
		near, far, err := unix.StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		s := foreign.From("another one")
		s.Took(near)
		if _, err := syscall.Write(near, []byte("last")); err != nil {
			t.Fatal(err)
		}
		foreign.Disconnect(near)
		if s.Held() > 0 || unix.IsStream(near) == nil {
			t.Error("the end of a connection waits for slow sources")
		}
		b := make([]byte, 8)
		for _, want := range []int{len("last"), 0} {
			if n, err := syscall.Read(far, b); n != want || err != nil {
				t.Errorf("the far end reads %d bytes (%v), want %d", n, err, want)
			}
		}
		_ = syscall.Close(far)
		s.Release()
	}
}

// The number of a closed descriptor is soon another file's, and no Close waits for that file.
func TestNumbersComeAgain(t *testing.T) {
	s := foreign.From("peer")
	defer s.Release()
	for range 1000 {
		fd, closed := pipe(t)
		s.Took(fd)
		foreign.Close(fd)
		closed()
		own, closed := pipe(t)
		foreign.Close(own)
		closed()
		mem, err := unix.Memfd("test", 4096)
		if err != nil {
			t.Fatal(err)
		}
		s.Took(mem)
		foreign.Own(mem)
		_ = unix.Close(mem)
	}
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	if err := s.Wait(ctx, 1); err != nil {
		t.Errorf("%d are held: %v", s.Held(), err)
	}
}

// connection gives both ends of a connection of packets.
func connection(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "connection")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// Connections of a source whose descriptors are slow to close are closed all the same: only those
// wait in which descriptors are queued.
func TestConnectionsOfASlowSource(t *testing.T) {
	from := foreign.From("slow, with connections")
	defer from.Release()
	slow, free := testutil.LingeringSockets(t, 8)
	from.Took(slow[:4]...)
	foreign.Close(slow[:4]...)
	for _, c := range []struct {
		name   string
		send   func(far *net.UnixConn) error
		queued bool
	}{
		{"nothing in it", func(*net.UnixConn) error { return nil }, false},
		{"a packet", func(far *net.UnixConn) error { _, err := far.Write([]byte{1}); return err }, false},
		{"an empty packet, and a slow descriptor", func(far *net.UnixConn) error {
			_, _, err := far.WriteMsgUnix(nil, nil, nil)
			if err == nil {
				_, _, err = far.WriteMsgUnix([]byte{1}, syscall.UnixRights(slow[4]), nil)
			}
			return err
		}, true},
	} {
		near, far := connection(t)
		if err := c.send(far); err != nil {
			t.Fatal(err)
		}
		before := from.Held()
		foreign.HangUp(near, from)
		if waits := from.Held() > before; waits != c.queued {
			t.Errorf("%s: the connection waits to be closed: %v, want %v", c.name, waits, c.queued)
		}
		_ = far.Close()
	}
	from.Took(slow[4:]...)
	foreign.Close(slow[4:]...)
	free()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	if err := from.Wait(ctx, 1); err != nil {
		t.Errorf("%d descriptors are still open: %v", from.Held(), err)
	}
}

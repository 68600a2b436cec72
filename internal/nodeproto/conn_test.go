//go:build linux

package nodeproto

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe" //nolint:depguard // for a system call that nothing wraps, see TestEmptyPacketWithDescriptors

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// bound is how long a test waits for what must happen.
const bound = 30 * time.Second

// sockets gives the two ends of a connection such as processes have with their
// daemon.
func sockets(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	p, err := syscall.Socketpair(syscall.AF_UNIX,
		syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range p {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// served makes c a Conn, whose end the test waits for when it ends itself.
func served(t testing.TB, c *net.UnixConn, h Handler) *Conn {
	t.Helper()
	l := NewConn(c, h)
	t.Cleanup(func() {
		l.Close()
		ended(t, l)
	})
	return l
}

func ended(t testing.TB, l *Conn) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(bound):
		t.Fatal("the connection does not end")
	}
}

func none(context.Context, Method, []byte, []int) (any, []int, error) { return Empty{}, nil, nil }

// pipe gives a pipe's reading end as a raw descriptor.
func pipe(t testing.TB) (fd int, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	t.Cleanup(func() { w.Close() })
	if fd, err = unix.Borrow(r); err != nil {
		t.Fatal(err)
	}
	return fd, w
}

// reader makes a received descriptor a file again.
func reader(t *testing.T, fds []int) *os.File {
	t.Helper()
	if len(fds) != 1 {
		t.Fatalf("%d descriptors came, want 1", len(fds))
	}
	f := os.NewFile(uintptr(fds[0]), "received")
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCallAndAnswerWithDescriptors(t *testing.T) {
	a, b := sockets(t)
	back, wback := pipe(t)
	served(t, b, func(_ context.Context, m Method, body []byte, fds []int) (any, []int, error) {
		r, err := Decode[ImportRequest](body)
		if m != Import || err != nil || r.Node != "n" || len(fds) != 1 {
			closeAll(fds)
			return nil, nil, code.New(code.BadArg, "method %d, %+v, %v, %d descriptors", m, r, err, len(fds))
		}
		f := os.NewFile(uintptr(fds[0]), "received")
		defer f.Close()
		got := make([]byte, 2)
		if _, err := io.ReadFull(f, got); err != nil || string(got) != "to" {
			return nil, nil, code.New(code.BadArg, "%q, %v", got, err)
		}
		return Grant{Handle: r.ID + 1}, []int{back}, nil
	})
	l := served(t, a, none)
	to, wto := pipe(t)
	if _, err := wto.WriteString("to"); err != nil {
		t.Fatal(err)
	}
	g, fds, err := Ask[Grant](t.Context(), l, Import, ImportRequest{Node: "n", PID: 1, ID: 41},
		[]int{to})
	closeAll([]int{to}) // it stays the caller's
	if err != nil || g.Handle != 42 {
		t.Fatalf("%+v, %v", g, err)
	}
	if _, err := wback.WriteString("from"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(reader(t, fds), got); err != nil || string(got) != "from" {
		t.Errorf("%q, %v", got, err)
	}
	testutil.PipeClosed(t, wto)
}

func TestErrorCodesTravel(t *testing.T) {
	a, b := sockets(t)
	cases := []struct {
		err  error
		want code.Code
		text string
	}{
		{code.New(code.NoSuchProcess, "no process %d", 7), code.NoSuchProcess, "no process 7"},
		{errors.Join(code.NoRights), code.NoRights, code.NoRights.Error()},
		{io.ErrUnexpectedEOF, code.Unknown, io.ErrUnexpectedEOF.Error()}, // has no code of its own
		{context.DeadlineExceeded, code.Timeout, context.DeadlineExceeded.Error()},
		{code.Code(-9999), code.Code(-9999), "unknown error code -9999"},
		// Must not break the connection.
		{code.New(code.BadArg, "%s", strings.Repeat("\x01é", MaxPacket)), code.BadArg, ""},
	}
	served(t, b, func(_ context.Context, m Method, _ []byte, _ []int) (any, []int, error) {
		return nil, nil, cases[m].err
	})
	l := served(t, a, none)
	for i, c := range cases {
		_, err := l.Call(t.Context(), Method(i), Empty{}, nil, nil)
		if !errors.Is(err, c.want) || c.text != "" && err.Error() != c.text {
			t.Errorf("%.80v arrived as %.80v", c.err, err)
		}
	}
}

// An answer that does not fit is the asker's error, not the connection's end.
func TestAnswerTooLarge(t *testing.T) {
	a, b := sockets(t)
	fd, w := pipe(t)
	served(t, b, func(_ context.Context, m Method, _ []byte, _ []int) (any, []int, error) {
		if m == Release {
			return strings.Repeat("x", MaxPacket), []int{fd}, nil
		}
		return Empty{}, nil, nil
	})
	l := served(t, a, none)
	if _, err := l.Call(t.Context(), Release, Empty{}, nil, nil); err == nil ||
		errors.Is(err, code.NoDaemon) {
		t.Errorf("an answer that is too large arrived as %v", err)
	}
	testutil.PipeClosed(t, w)
	if _, err := l.Call(t.Context(), Import, Empty{}, nil, nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestRequestTooLarge(t *testing.T) {
	a, b := sockets(t)
	served(t, b, none)
	l := served(t, a, none)
	if _, err := l.Call(t.Context(), Import, strings.Repeat("x", MaxPacket), nil, nil); !errors.Is(err,
		ErrPacket) {
		t.Errorf("a request that is too large: %v", err)
	}
	if _, err := l.Call(t.Context(), Import, Empty{}, nil, nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestCancellationReachesTheHandler(t *testing.T) {
	a, b := sockets(t)
	began, over := make(chan struct{}), make(chan error, 1)
	served(t, b, func(ctx context.Context, m Method, _ []byte, _ []int) (any, []int, error) {
		if m == Import {
			close(began)
			<-ctx.Done()
			over <- ctx.Err()
		}
		return Empty{}, nil, nil
	})
	l := served(t, a, none)
	why := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-began; cancel(why) }()
	if _, err := l.Call(ctx, Import, Empty{}, nil, nil); !errors.Is(err, why) {
		t.Errorf("the cancelled call: %v", err)
	}
	select {
	case err := <-over:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(bound):
		t.Fatal("the handler was not cancelled")
	}
	if _, err := l.Call(t.Context(), Release, Empty{}, nil, nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// A late answer's descriptors have no taker and are closed.
func TestAnswerAfterCancellation(t *testing.T) {
	a, b := sockets(t)
	began := make(chan struct{})
	fd, w := pipe(t)
	served(t, b, func(ctx context.Context, m Method, _ []byte, _ []int) (any, []int, error) {
		if m != Import {
			return Empty{}, nil, nil
		}
		close(began)
		<-ctx.Done()
		return Empty{}, []int{fd}, nil
	})
	l := served(t, a, none)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if _, err := l.Call(ctx, Import, Empty{}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	testutil.PipeClosed(t, w)
}

func TestPeerClosingEndsPendingCalls(t *testing.T) {
	a, b := sockets(t)
	l := served(t, a, none)
	began := make(chan struct{}, 8)
	far := served(t, b, func(ctx context.Context, _ Method, _ []byte, _ []int) (any, []int, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	errs := make(chan error, cap(began))
	for range cap(began) {
		go func() {
			_, err := l.Call(t.Context(), Import, Empty{}, nil, nil)
			errs <- err
		}()
	}
	for range cap(began) {
		<-began
	}
	far.Close()
	for range cap(began) {
		if err := <-errs; !errors.Is(err, code.NoDaemon) {
			t.Errorf("a call whose peer closed: %v", err)
		}
	}
	ended(t, far)
	ended(t, l)
	if _, err := l.Call(t.Context(), Import, Empty{}, nil, nil); !errors.Is(err, code.NoDaemon) {
		t.Errorf("a call on a dead connection: %v", err)
	}
	if l.Err() == nil || !errors.Is(far.Err(), net.ErrClosed) {
		t.Errorf("they ended with %v and %v", l.Err(), far.Err())
	}
}

// A peer that sends a malformed packet is cut off, and the descriptors that it sent are closed.
func TestMalformedPacketsEndTheConnection(t *testing.T) {
	good, err := encode(header{kind: request, method: Import, id: 1}, Empty{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		packet []byte
		fds    int
	}{
		"wrong magic":                {append([]byte("HTTP"), good[4:]...), 1},
		"short":                      {good[:7], 1},
		"descriptors not announced":  {good, 1},
		"more descriptors than fit":  {good, MaxDescriptors + 3},
		"descriptors do not come":    {append(append(bytes.Clone(good[:5]), 2), good[6:]...), 0},
		"too large":                  {append(bytes.Clone(good), make([]byte, MaxPacket)...), 0},
		"far too large":              {append(bytes.Clone(good), make([]byte, 2*MaxPacket)...), 0},
		"too large with descriptors": {append(bytes.Clone(good), make([]byte, MaxPacket)...), 2},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			l := served(t, b, none)
			fd, w := pipe(t)
			fds := make([]int, c.fds)
			for i := range fds {
				fds[i] = fd
			}
			_, _, err := a.WriteMsgUnix(c.packet, unix.Rights(fds), nil)
			closeAll([]int{fd})
			if err != nil {
				t.Fatal(err)
			}
			ended(t, l)
			if l.Err() == nil {
				t.Error("it ended without a reason")
			}
			_ = a.SetReadDeadline(time.Now().Add(bound))
			if n, err := a.Read(make([]byte, MaxPacket)); n != 0 || !errors.Is(err, io.EOF) &&
				!errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("it answered %d bytes, %v, want the end", n, err)
			}
			testutil.PipeClosed(t, w)
		})
	}
}

// An empty packet reads as the peer's end, but can bring descriptors.
func TestEmptyPacketWithDescriptors(t *testing.T) {
	a, b := sockets(t)
	l := served(t, b, none)
	fd, w := pipe(t)
	rights := unix.Rights([]int{fd, fd})
	msg := syscall.Msghdr{Control: &rights[0]}
	msg.SetControllen(len(rights))
	rc, err := a.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var e syscall.Errno
	if err := rc.Control(func(s uintptr) {
		// Raw, because the standard library never sends descriptors without a byte.
		_, _, e = syscall.Syscall(syscall.SYS_SENDMSG, s, uintptr(unsafe.Pointer(&msg)), 0)
	}); err != nil || e != 0 {
		t.Fatal(err, e)
	}
	closeAll([]int{fd})
	ended(t, l)
	testutil.PipeClosed(t, w)
}

// The same number twice, an answer without a request and a cancellation of nothing are no reason to
// end the connection, and leak nothing.
func TestStrangePackets(t *testing.T) {
	a, b := sockets(t)
	hold := make(chan struct{})
	l := served(t, b, func(_ context.Context, m Method, _ []byte, fds []int) (any, []int, error) {
		closeAll(fds)
		if m == Import {
			<-hold
		}
		return Empty{}, nil, nil
	})
	say := func(h header, body any) (w *os.File) {
		fd, w := pipe(t)
		h.fds = 1
		p, err := encode(h, body)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = a.WriteMsgUnix(p, unix.Rights([]int{fd}), nil)
		closeAll([]int{fd})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	hear := func(want header) {
		t.Helper()
		p := make([]byte, MaxPacket)
		_ = a.SetReadDeadline(time.Now().Add(bound))
		n, err := a.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		if h, _, err := parse(p[:n]); err != nil || h.kind != want.kind || h.id != want.id {
			t.Errorf("got %+v (%v), want %+v", h, err, want)
		}
	}
	testutil.PipeClosed(t, say(header{kind: reply, id: 7}, Empty{}))
	testutil.PipeClosed(t, say(header{kind: failure, id: 8}, wireError{code.NoMem, "x"}))
	testutil.PipeClosed(t, say(header{kind: failure, id: 9}, "not a remote"))
	testutil.PipeClosed(t, say(header{kind: cancel, id: 10}, nil))
	say(header{kind: request, method: Import, id: 5}, Empty{})
	testutil.PipeClosed(t, say(header{kind: request, method: Release, id: 5}, Empty{}))
	hear(header{kind: failure, id: 5}) // of the second
	close(hold)
	hear(header{kind: reply, id: 5}) // of the first
	testutil.PipeClosed(t, say(header{kind: request, method: Release, id: 6}, Empty{}))
	hear(header{kind: reply, id: 6})
	if l.Err() != nil {
		t.Error(l.Err())
	}
}

func TestDial(t *testing.T) {
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead := dir + "/dead"
	s, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: dead, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	s.SetUnlinkOnClose(false)
	s.Close()
	for name, c := range map[string]struct {
		path string
		want code.Code
		says string
	}{
		"nothing there":   {dir + "/none", code.NoDaemon, "start vmmcd, set " + Env},
		"no socket":       {file, code.NoDaemon, "start vmmcd"},
		"its daemon died": {dead, code.NoDaemon, "start vmmcd"},
		"path too long":   {dir + strings.Repeat("/x", 60), code.BadArg, "choose a shorter directory"},
	} {
		conn, err := Dial(t.Context(), c.path)
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: %v, want %q and the path in it", name, err, c.says)
		}
	}
}

func TestDefaultPath(t *testing.T) {
	t.Setenv(Env, "/a/b")
	if p := DefaultPath(); p != "/a/b" || FromEnv() != p {
		t.Errorf("with %s set: %q", Env, p)
	}
	t.Setenv(Env, "")
	if p := DefaultPath(); !strings.HasSuffix(p, "/node.sock") || CheckPath(p) != nil {
		t.Errorf("without: %q", p)
	}
}

// More descriptors than a packet can bring are the answer's failure, and not the
// connection's.
func TestTooManyDescriptorsAreRefused(t *testing.T) {
	a, b := sockets(t)
	fd, _ := pipe(t)
	fds := make([]int, MaxDescriptors+1)
	for i := range fds {
		fds[i] = fd
	}
	var less atomic.Bool
	served(t, b, func(context.Context, Method, []byte, []int) (any, []int, error) {
		n := MaxDescriptors
		if !less.Load() {
			n++
		}
		var out []int
		for range n {
			d, err := unix.Dup(fd)
			if err != nil {
				return nil, out, err
			}
			out = append(out, d)
		}
		return Empty{}, out, nil
	})
	l := served(t, a, none)
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	if _, err := l.Call(ctx, Import, Empty{}, fds, nil); !errors.Is(err, ErrPacket) {
		t.Errorf("a request with %d descriptors: %v, want %v", len(fds), err, ErrPacket)
	}
	if got, err := l.Call(ctx, Import, Empty{}, nil, nil); err == nil {
		closeAll(got)
		t.Errorf("an answer with %d descriptors came", len(got))
	}
	less.Store(true)
	got, err := l.Call(ctx, Import, Empty{}, nil, nil)
	closeAll(got)
	if err != nil || len(got) != MaxDescriptors {
		t.Errorf("afterwards: %d descriptors, %v", len(got), err)
	}
	closeAll([]int{fd})
}

// A client that was accepted is refused no more, and an end that has not dialled never is: the
// packet would let a peer choose what this end writes.
func TestRefusedTooLate(t *testing.T) {
	b, err := encode(header{kind: failure}, wireError{Code: code.NoMem, Text: "as I say"})
	if err != nil {
		t.Fatal(err)
	}
	for name, begin := range map[string]func(far *net.UnixConn, near *net.UnixConn) *Conn{
		"not dialled": func(_, near *net.UnixConn) *Conn { return NewConn(near, nil) },
		"taken on": func(far, near *net.UnixConn) *Conn {
			l := NewDialledConn(near, nil)
			c, err := encode(header{kind: cancel, id: 1}, nil)
			if err == nil {
				_, err = far.Write(c)
			}
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
	} {
		near, far := sockets(t)
		l := begin(far, near)
		if _, err := far.Write(b); err != nil {
			t.Fatal(err)
		}
		ended(t, l)
		if err := l.Err(); !errors.Is(err, ErrPacket) || strings.Contains(err.Error(), "as I say") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A refused client learns why, whether the other end refused before its request or after, and asks
// again.
func TestRefuse(t *testing.T) {
	why := code.New(code.NoMem, "there are too many")
	for name, first := range map[string]bool{"before it asks": true, "when it has asked": false} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			if first {
				Refuse(b, 0, why)
			}
			l := NewDialledConn(a, nil)
			said := make(chan error, 1)
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			ask := func() {
				_, err := l.Call(t.Context(), Register, Hello{}, []int{int(f.Fd())}, nil)
				said <- err
			}
			go ask()
			if !first {
				var p [1]byte
				c, err := b.SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Read(func(fd uintptr) bool { // until the request is there, and not beyond
					n, _, err := syscall.Recvfrom(int(fd), p[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
					return err == nil && n > 0
				}); err != nil {
					t.Fatal(err)
				}
				Refuse(b, 0, why)
			}
			for i := range 2 {
				select {
				case err := <-said:
					if !errors.Is(err, code.NoMem) || !strings.Contains(err.Error(), "too many") {
						t.Errorf("call %d: %v", i, err)
					}
				case <-time.After(bound):
					t.Fatal("a call goes on")
				}
				if i == 0 {
					go ask()
				}
			}
			ended(t, l)
		})
	}
}

package unix

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	sys "golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b int) {
	t.Helper()
	a, b, err := StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = Close(a), Close(b) })
	return a, b
}

func TestSendAndRecv(t *testing.T) {
	a, b := pair(t)
	var io1, io2 IO
	one, two := make([]byte, 3), make([]byte, 9)
	if n, err := io2.Recv(b, one, nil); n != 0 || err != nil {
		t.Errorf("when nothing is there: %d, %v", n, err)
	}
	if n, err := io1.Send(a, []byte("abc"), []byte("defg")); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := io2.Recv(b, one, two); n != 7 || err != nil || string(one) != "abc" || string(two[:4]) != "defg" {
		t.Errorf("%d, %v: %q %q", n, err, one, two)
	}
	total := 0
	for big := make([]byte, 1<<16); ; {
		n, err := io1.Send(a, big, nil)
		if err != nil {
			t.Fatal(err)
		}
		if total += n; n == 0 {
			break // full, and it did not block
		}
	}
	for buf := make([]byte, 1<<16); total > 0; {
		n, err := io2.Recv(b, buf, nil)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		total -= n
	}
	if err := sys.Shutdown(a, sys.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if n, err := io2.Recv(b, one, nil); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if err := sys.Shutdown(b, sys.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	if _, err := io1.Send(a, one, nil); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("send after both ends were shut down: %v", err)
	}
}

func TestIsStream(t *testing.T) {
	a, _ := pair(t)
	if err := IsStream(a); err != nil {
		t.Error(err)
	}
	p, err := sys.Socketpair(sys.AF_UNIX, sys.SOCK_DGRAM|sys.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(p[1])
	defer sys.Close(p[0])
	if IsStream(p[0]) == nil {
		t.Error("a datagram socket passes")
	}
	m, err := Memfd("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(m)
	if IsStream(m) == nil || IsStream(-1) == nil {
		t.Error("what is no socket passes")
	}
}

// Whatever a control message holds, its descriptors are returned or closed.
func TestParseRights(t *testing.T) {
	fds := func() []int {
		a, b, err := StreamPair()
		if err != nil {
			t.Fatal(err)
		}
		return []int{a, b}
	}
	open := func(fd int) bool {
		_, err := sys.FcntlInt(uintptr(fd), sys.F_GETFD, 0)
		return err == nil
	}
	in := fds()
	got, err := ParseRights(Rights(in), 0)
	if err != nil || len(got) != 2 || got[0] != in[0] || got[1] != in[1] || !open(in[0]) {
		t.Errorf("%v, %v, want %v", got, err, in)
	}
	more := append(Rights(in[:1]), Rights(in[1:])...) // two messages
	if got, err := ParseRights(more, 0); err != nil || len(got) != 2 {
		t.Errorf("%v, %v, want %v", got, err, in)
	}
	if got, err := ParseRights(more, sys.MSG_CTRUNC); err == nil || len(got) != 0 || open(in[0]) || open(in[1]) {
		t.Errorf("of a truncated message %v remain (%v)", got, err)
	}
	if got, err := ParseRights([]byte("x"), 0); len(got) != 0 {
		t.Errorf("garbage: %v, %v", got, err)
	}
	if Rights(nil) != nil || len(Rights([]int{1, 2, 3})) != RightsSpace(3) {
		t.Error("the space for descriptors is not what they take")
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := LockFile(path); !errors.Is(err, syscall.EWOULDBLOCK) {
		again.Close()
		t.Errorf("a second holder: %v", err)
	}
	f.Close()
	again, err := LockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := LockFile(path + "/x"); err == nil {
		t.Error("a lock in what is no directory")
	}
	if !Alive(os.Getpid()) || Alive(1<<30) {
		t.Error("Alive is wrong about this process, or about a pid that cannot exist")
	}
}

// An armed descriptor gives one event, also for what came before it was armed; a
// disarmed one gives none.
func TestEpollIsOneShot(t *testing.T) {
	a, b := pair(t)
	ep, err := NewEpoll()
	if err != nil {
		t.Fatal(err)
	}
	defer ep.Close()
	if err := ep.Add(b, 42, false); err != nil {
		t.Fatal(err)
	}
	var ev [4]Event
	var w IO
	look := func(what string, want int) {
		t.Helper()
		if n := ep.Look(ev[:]); n != want || n == 1 && ev[0].ID != 42 {
			t.Errorf("%s: %d events, %v, want %d", what, n, ev[0], want)
		}
	}
	look("nothing came", 0)
	if _, err := w.Send(a, []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if n, err := ep.Wait(ev[:]); n != 1 || err != nil || ev[0].ID != 42 {
		t.Errorf("wait: %d, %v, %v", n, err, ev[0])
	}
	look("taken already", 0)
	if err := ep.Arm(b, 42, false); err != nil {
		t.Fatal(err)
	}
	ep.Disarm(b, 42)
	look("disarmed", 0)
	if err := ep.Arm(b, 42, false); err != nil {
		t.Fatal(err)
	}
	look("armed again", 1)
	ep.Remove(b)
	look("removed", 0)
}

// Each descriptor is that of its frame, and one that cannot be told from others is
// none.
func TestPassed(t *testing.T) {
	a, b := pair(t)
	inode := func(fd int) uint64 {
		var st sys.Stat_t
		if err := sys.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	var out, in IO
	var inodes []uint64
	for i := range 3 {
		fd, err := Memfd("test", 4096)
		if err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, inode(fd))
		if n, ok, err := out.SendPassed(a, []byte{byte(i), 1}, fd); n != 2 || !ok || err != nil {
			t.Fatal(n, ok, err)
		}
		_ = Close(fd)
		if n, err := out.Send(a, []byte("xyz"), nil); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	var p Passed
	var got []byte
	for len(got) < 15 {
		buf, more := make([]byte, 2), make([]byte, 64)
		n, err := in.RecvPassed(b, buf, more, &p)
		if n <= 0 || err != nil {
			t.Fatal(n, err)
		}
		got = append(got, append(buf, more...)[:n]...)
	}
	if want := "\x00\x01xyz\x01\x01xyz\x02\x01xyz"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i, want := range inodes[:2] {
		fd := p.Take()
		if fd < 0 || inode(fd) != want {
			t.Errorf("descriptor %d is %d, of another file", i, fd)
		}
		if flags, err := sys.FcntlInt(uintptr(fd), sys.F_GETFD, 0); err != nil || flags&sys.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d goes to programs: %v", i, err)
		}
		_ = Close(fd)
	}
	for _, fd := range p.Rest() { // the third
		_ = Close(fd)
	}
	if fd := p.Take(); fd != -1 {
		t.Errorf("one more: %d", fd)
	}

	for n := range 4 { // so many with one byte
		fds := make([]int, n)
		for i := range fds {
			fds[i] = a
		}
		if err := sys.Sendmsg(a, []byte{1}, Rights(fds), nil, 0); err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		if got, err := in.RecvPassed(b, one, nil, &p); got != 1 || err != nil {
			t.Fatal(got, err)
		}
		fd := p.Take()
		if (fd >= 0) != (n == 1) {
			t.Errorf("with %d descriptors there is %d", n, fd)
		}
		for _, fd := range append(p.Rest(), fd) {
			_ = Close(fd)
		}
	}
}

package unix

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	sys "golang.org/x/sys/unix"
)

// A starter is a thread with a table of descriptors of its own, which starts programs.
//
// A child gets a copy of its parent's table, and exec closes in it what it must not keep. Closing a
// file asks its file system (flush), which need not answer: of a FUSE server, say. Then the thread
// that forked waits for it too, and keeps its P, for which the next collection waits. So a process
// that receives descriptors of other users starts programs from a thread in whose table these never
// are.
//
// The thread takes the descriptors of a program out of the process's table (pidfd_getfd). Where a
// filter or an old kernel refuses that, they come to it as rights over a socket, which fails while
// the process has too many descriptors under way to peers that do not receive them.
//
// The thread is locked to a goroutine that does nothing else, and both last as long as the process.
type starter struct {
	mu   sync.Mutex // one start at a time
	sock int        // of the whole process; its far end is the thread's. -1: the thread takes
	jobs chan *startJob
}

// startJob is a start of a program. The thread sets pid and err, and closes done.
type startJob struct {
	path string
	args []string
	attr *syscall.ProcAttr // Files are the thread's
	take []int             // the descriptors' numbers in the process's table, unless they are rights
	caps []int             // what the program inherits
	pid  int
	err  error
	done chan struct{}
}

// programStarter is nil until KeepStarter has succeeded.
var programStarter atomic.Pointer[starter]

// KeepStarter has this process start programs from a thread that has none of the descriptors which
// the process receives. It is called before there are any, and once. Without it, or after an error,
// programs are started by the goroutines that begin them.
func KeepStarter() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep a thread that starts programs: %w", err)
		}
	}()
	// The first use of a pidfd by package os forks a child, to see whether pidfds work. Let that be
	// now.
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
	r, w, err := os.Pipe() // from now on there is the runtime's poller, see keepOwn
	if err != nil {
		return err
	}
	_, _ = r.Close(), w.Close()
	p, err := sys.Socketpair(sys.AF_UNIX, sys.SOCK_SEQPACKET|sys.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	s := &starter{sock: p[0], jobs: make(chan *startJob)}
	ready := make(chan readiness)
	go s.run(p[1], ready)
	is := <-ready
	_ = sys.Close(p[1]) // the thread has a copy of it
	if is.err != nil || is.takes {
		_ = sys.Close(p[0])
		s.sock = -1
	}
	if is.err != nil {
		return is.err
	}
	programStarter.Store(s)
	return nil
}

// readiness is what has become of the thread, and whether it takes descriptors by itself.
type readiness struct {
	err   error
	takes bool
}

// run is the thread.
func (s *starter) run(sock int, ready chan<- readiness) {
	runtime.LockOSThread()
	// its table stays the process's: /proc/self and pidfd_getfd(2) look there
	if sys.Gettid() == sys.Getpid() {
		other := make(chan readiness)
		go s.run(sock, other)
		ready <- <-other // until then the other goroutine cannot have this thread
		runtime.UnlockOSThread()
		return
	}
	from := source{sock: sock, self: -1}
	if err := keepOwn(sock); err != nil {
		ready <- readiness{err: err}
		return // and the thread ends, as it is locked
	}
	if self, err := sys.PidfdOpen(sys.Getpid(), 0); err == nil {
		if fd, err := sys.PidfdGetfd(self, s.sock, 0); err == nil { // it is allowed
			_ = sys.Close(fd)
			_ = sys.Close(sock)
			from = source{sock: -1, self: self}
		} else {
			_ = sys.Close(self)
		}
	}
	ready <- readiness{takes: from.self >= 0}
	for job := range s.jobs {
		job.start(from)
		close(job.done)
	}
}

// source is where the thread has programs' descriptors from: a pidfd of the process, or a socket.
// One of them is -1.
type source struct{ sock, self int }

func (from source) descriptors(take []int) (fds []int, err error) {
	if from.self < 0 {
		return receiveAll(from.sock)
	}
	for _, n := range take {
		fd, err := sys.PidfdGetfd(from.self, n, 0)
		if err != nil {
			return fds, os.NewSyscallError("pidfd_getfd", err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// keepOwn gives this thread a table of descriptors of its own, with sock, the standard ones, and
// those of the runtime's poller. What the thread does may have the runtime poll, or interrupt a
// poll, and the runtime ends a program in which that fails.
func keepOwn(sock int) error {
	if err := sys.Unshare(sys.CLONE_FILES); err != nil {
		// Filters of containers refuse unshare(2) whatever it is asked for. No descriptor is that large.
		_, _, e := sys.RawSyscall(sys.SYS_CLOSE_RANGE, math.MaxUint32, math.MaxUint32, sys.CLOSE_RANGE_UNSHARE)
		if e != 0 {
			return os.NewSyscallError("unshare", err)
		}
	}
	const list = "/proc/thread-self/fd"
	all, err := os.ReadDir(list)
	if err != nil {
		return err
	}
	var rest []int
	poller := map[string]bool{"anon_inode:[eventpoll]": false, "anon_inode:[eventfd]": false}
	for _, e := range all {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 || fd == sock {
			continue
		}
		what, err := os.Readlink(filepath.Join(list, e.Name()))
		switch _, of := poller[what]; {
		case errors.Is(err, fs.ErrNotExist): // the list's own
		case err != nil:
			return err
		case of:
			poller[what] = true
		default:
			rest = append(rest, fd)
		}
	}
	for what, seen := range poller {
		if !seen {
			return fmt.Errorf("the runtime's poller has no %s", what)
		}
	}
	for _, fd := range rest {
		_ = sys.Close(fd) // of what was there before, which is none of another user's
	}
	return nil
}

// start starts the program.
func (j *startJob) start(from source) {
	fds, err := from.descriptors(j.take)
	defer func() {
		for _, fd := range fds {
			_ = sys.Close(fd)
		}
	}()
	if err != nil {
		j.err = err
		return
	}
	for _, fd := range fds {
		j.attr.Files = append(j.attr.Files, uintptr(fd))
	}
	if j.err = inheritable(j.caps); j.err != nil {
		return
	}
	j.pid, j.err = syscall.ForkExec(j.path, j.args, j.attr)
	if len(j.caps) > 0 {
		_ = inheritable(nil) // the next job's are set before it forks, or it does not
	}
}

// receiveAll takes the descriptors of one message.
func receiveAll(sock int) (fds []int, err error) {
	var b [1]byte
	control := make([]byte, sys.CmsgSpace(4*MaxRights))
	for {
		_, n, got, _, err := sys.Recvmsg(sock, b[:], control, sys.MSG_CMSG_CLOEXEC)
		if err == sys.EINTR {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("recvmsg", err)
		}
		return Received(control[:n], got)
	}
}

// start starts a program with the descriptors files. pidfd is -1 where the kernel has none.
func (s *starter) start(
	path string, args []string, attr *syscall.ProcAttr, files []*os.File, caps []int,
) (pid, pidfd int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer runtime.KeepAlive(files)
	j := &startJob{path: path, args: args, attr: attr, caps: caps, done: make(chan struct{})}
	for _, f := range files {
		j.take = append(j.take, int(f.Fd()))
	}
	if s.sock >= 0 {
		err = SendRights(s.sock, []byte{0}, j.take)
		if errors.Is(err, sys.ETOOMANYREFS) || errors.Is(err, sys.ENOBUFS) {
			err = fmt.Errorf("%w (%w)", sys.ENOMEM, err)
		}
		if err != nil {
			return 0, -1, fmt.Errorf("give a program its descriptors: %w", err)
		}
	}
	s.jobs <- j
	<-j.done
	if j.err != nil {
		return 0, -1, j.err
	}
	switch pidfd, err = sys.PidfdOpen(j.pid, 0); { // no one has waited for the child
	case err == nil:
		return j.pid, pidfd, nil
	case errors.Is(err, sys.ENOSYS), errors.Is(err, sys.EPERM):
		return j.pid, -1, nil
	}
	// Without descriptors left the child would cost a thread as long as it lives.
	_ = sys.Kill(j.pid, sys.SIGKILL)
	go func() { // it may wait for a file server, which no signal ends
		for {
			if _, err := sys.Wait4(j.pid, nil, 0, nil); err != sys.EINTR {
				return
			}
		}
	}()
	return 0, -1, os.NewSyscallError("pidfd_open", err)
}

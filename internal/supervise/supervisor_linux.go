package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// socketFile is where a supervisor listens, in the session's directory.
const socketFile = "socket"

// lockFile is held by the session's supervisor.
const lockFile = "lock"

// The descriptors that a supervisor inherits beside its spec on standard input.
const (
	dirFD   = 3 // the session's directory
	readyFD = 4 // it says here that it is ready, or why not
)

type supervisor struct {
	drive
	base string   // as the kernel names it
	lock *os.File // kept open
	done chan struct{}

	// firstThread are the starts of programs, for the first thread. The kernel notifies the thread
	// that has started a program of its end; it notifies the first thread of the end of all other
	// children, if it can. Other threads cannot be notified while a file hangs.
	firstThread chan func()

	// forkMu is held while a program's child is started, and while those that have ended are
	// taken: a child that ends at once must be known before it is. Nothing that
	// may hang is done meanwhile: the child executes the program.
	forkMu sync.Mutex

	mu       sync.Mutex // after fork
	programs map[uint32]*program
	byReal   map[int]*program
	ending   chan struct{}     // closed, under mu, when a client has asked for the end
	changed  chan struct{}     // closed and replaced when a program ends
	leases   map[uint32]*lease // by run group
	journal  journal
	conns    map[*nodeproto.Conn]struct{}
}

// program is one that this supervisor has started, or that has joined, or that
// the journal tells of.
type program struct {
	Program
	out      *output     // nil: not started by this supervisor
	proc     *os.Process // of one that has joined
	executed bool        // its child has executed it
}

// Main is the supervisor's process. It returns when the session has ended. Its goroutine is to have
// the process's first thread to itself. The process keeps so many threads idle, beside one for each
// processor that it uses ([Threads] are enough), and room says how many more the system lets it
// have.
func Main(idle int, room func() int) error {
	said := os.NewFile(readyFD, "ready")
	s, l, err := begin(idle, room)
	if err != nil {
		fmt.Fprint(said, err)
		_ = said.Close()
		return err
	}
	_, _ = said.WriteString(ready)
	_ = said.Close()
	return s.serve(l)
}

func begin(idle int, room func() int) (*supervisor, *net.UnixListener, error) {
	dir := os.NewFile(dirFD, "session directory")
	err := dir.Chdir()
	_ = dir.Close()
	if err != nil {
		return nil, nil, fmt.Errorf("enter the session's directory: %w", err)
	}
	s := &supervisor{
		done: make(chan struct{}), programs: map[uint32]*program{}, byReal: map[int]*program{},
		changed: make(chan struct{}), conns: map[*nodeproto.Conn]struct{}{}, leases: map[uint32]*lease{},
		firstThread: make(chan func()), ending: make(chan struct{}), drive: drive{fileSlots: newFileSlots(idle, room)},
	}
	if err := json.NewDecoder(os.Stdin).Decode(&s.spec); err != nil {
		return nil, nil, fmt.Errorf("read what the session is: %w", err)
	}
	if f, err := os.OpenFile("crash", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err == nil {
		_ = debug.SetCrashOutput(f, debug.CrashOptions{})
		_ = f.Close()
	}
	// For as long as this runs, so that a session never has two.
	if s.lock, err = unix.LockFile(lockFile); err != nil {
		return nil, nil, err
	}
	if err := unix.BecomeSubreaper(); err != nil {
		return nil, nil, err
	}
	if err := s.openBase(); err != nil {
		return nil, nil, err
	}
	s.takeOver()
	if err := os.Remove(socketFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	lc := net.ListenConfig{Control: unix.TakesNoRights} // clients send a supervisor no descriptors
	l, err := lc.Listen(context.Background(), "unixpacket", socketFile)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for the daemon: %w", err)
	}
	return s, l.(*net.UnixListener), nil
}

// openBase opens the base, which everything is below from now on, and makes sure
// that there is a place for output.
func (s *supervisor) openBase() (err error) {
	if err := CheckDirectory("output directory", s.spec.Output); err != nil {
		return err
	}
	if s.root, err = os.OpenRoot(s.spec.Base); err != nil {
		return fmt.Errorf("open the session's base directory as user %d: %w", os.Getuid(), err)
	}
	d, err := s.root.Open(".")
	if err != nil {
		return fmt.Errorf("open the session's base directory as user %d: %w", os.Getuid(), err)
	}
	defer d.Close()
	rc, err := d.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) { s.base, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("name the session's base directory: %w", err)
	}
	out := within(s.spec.Output)
	if err := s.root.MkdirAll(out, 0o750); err != nil {
		return fmt.Errorf("make the output directory %s in %s: %w", s.spec.Output, s.base, err)
	}
	return nil
}

// takeOver takes over from a supervisor that has died, as far as that is possible:
// its programs' output has nowhere to go any more, so what is left of them is
// ended.
func (s *supervisor) takeOver() {
	if !s.spec.New { // all users' processes are searched, which takes time
		KillAll(os.Getpid(), s.spec.Marker, timeout.Stop)
	}
	for pid, p := range loadJournal() {
		if !p.Ended {
			p.Ended, p.Lost, p.End = true, true, time.Now()
		}
		s.programs[pid] = &program{Program: *p}
	}
	s.dropOldest()
	s.journal.rewrite(s.each)
	dropIndexes(func(pid string) bool {
		n, err := strconv.ParseUint(pid, 10, 32)
		return err == nil && s.programs[uint32(n)] != nil
	})
}

// each calls f for all programs. mu is held, or no other goroutine runs yet.
func (s *supervisor) each(f func(*Program)) {
	for _, p := range s.programs {
		f(&p.Program)
	}
}

// serve answers daemons until the session ends.
func (s *supervisor) serve(l *net.UnixListener) error {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	go s.accept(l)
	look := time.NewTicker(timeout.Abandoned)
	defer look.Stop()
	for {
		s.reap()
		select {
		case <-died:
		case f := <-s.firstThread:
			f()
		case <-look.C:
			if _, err := os.Stat(socketFile); errors.Is(err, fs.ErrNotExist) {
				// No daemon can reach this session any more, to end it or otherwise.
				_, _ = s.end() // else when it is looked at again
			}
		case why := <-told:
			// The machine goes down: the session stays, and a new supervisor will
			// know by the journal what there was.
			_, _ = s.end()
			return fmt.Errorf("supervisor of session %q: %v", s.spec.Session, why)
		case <-s.done:
			_ = l.Close()
			s.awaitDisconnect()
			for _, f := range []string{journalFile, journalFile + ".new", "crash", lockFile, socketFile} {
				_ = os.Remove(f)
			}
			dropIndexes(func(string) bool { return false })
			return nil
		}
	}
}

// runOnFirstThread has the first thread start a program, unless the session ends before.
func (s *supervisor) runOnFirstThread(start func() error) error {
	done := make(chan error)
	select {
	case s.firstThread <- func() { done <- start() }:
		return <-done
	case <-s.ending:
		return s.deleted()
	}
}

func (s *supervisor) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: others may close some
			continue
		}
		cred, err := unix.PeerCred(c)
		if err != nil || cred.UID != 0 && cred.UID != s.spec.Daemon && int(cred.UID) != os.Getuid() {
			nodeproto.HangUp(c)
			continue
		}
		start := make(chan struct{})
		var conn *nodeproto.Conn
		conn = nodeproto.NewConn(c, func(ctx context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
			<-start
			foreign.Close(fds...)
			a, err := s.answer(ctx, conn, m, body)
			return a, nil, err
		})
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		close(start)
		go func() {
			<-conn.Done()
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
		}()
	}
}

// awaitDisconnect gives the client that asked for the end the time to get the reply. A call that
// hangs in a file system keeps its connection, and must not delay this.
func (s *supervisor) awaitDisconnect() {
	deadline := time.Now().Add(timeout.Settle)
	for time.Now().Before(deadline) {
		s.mu.Lock()
		n := len(s.conns)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

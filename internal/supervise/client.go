package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Client is a daemon's connection to a supervisor. It may be used concurrently.
type Client struct {
	State

	conn *nodeproto.Conn
	real int
	uid  uint32
}

// Launch starts a supervisor: argv is the program that calls [Main], as is the
// user, dir the session's directory, which is that user's. place is told its
// number before it begins; it may be nil. Launch returns when the supervisor
// listens. If it fails, the child is nil, or cannot be killed and is the caller's to reap.
func Launch(
	ctx context.Context, argv, env []string, as *unix.Identity, dir *os.File, spec Spec,
	place func(pid int),
) (*unix.Child, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	defer feed.Close()
	said, say, err := unix.OutputPipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()
	defer say.Close()
	c, err := unix.Start(ctx, unix.Program{
		Path: argv[0], Args: argv[1:], Env: env, Dir: "/", As: as, Apart: true,
		Files: [3]*os.File{in, null, null}, Extra: []*os.File{dir, say},
	})
	if hint, is := unix.Scarce(err); is {
		return nil, code.New(code.NoMem,
			"start a supervisor (%s): %v%s", strings.Join(argv, " "), err, hint)
	} else if err != nil {
		return nil, fmt.Errorf("start a supervisor (%s): %w", strings.Join(argv, " "), err)
	}
	_ = say.Close()
	_ = in.Close()
	if place != nil {
		place(c.PID()) // it waits for its spec
	}
	err = json.NewEncoder(feed).Encode(spec) // fits into the pipe, which may have no reader
	_ = feed.Close()
	if err == nil {
		err = readReady(ctx, said)
	}
	if err != nil {
		c.Signal(9)
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Stop)
		defer stop()
		// it is in a file of its user's: the kernel waits for the file's server
		if !c.AwaitOr(late.Done()) {
			return c, fmt.Errorf("%w; it cannot be killed, because the kernel waits for a file server", err)
		}
		c.Reap()
		return nil, err
	}
	return c, nil
}

// minThreads is how many threads a supervisor needs to start. With fewer it may end.
const minThreads = 16

// readReady waits until the supervisor is ready, or says why it is not.
func readReady(ctx context.Context, said *os.File) error {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = said.SetReadDeadline(time.Unix(1, 0)) })()
	b, err := io.ReadAll(io.LimitReader(said, 4096))
	switch {
	case err != nil && ctx.Err() != nil:
		return code.New(code.Timeout,
			"the supervisor does not say that it is ready: %v", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("hear from the supervisor: %w", err)
	case len(b) == 0 && cgroup.ThreadsLeft() < minThreads:
		return code.New(code.NoMem, "the supervisor ended before it was ready: the system lets the node have only %d more threads: let some end, or raise pids.max of its cgroup (TasksMax= of vmmcd)", cgroup.ThreadsLeft())
	case len(b) == 0:
		return errors.New("the supervisor ended before it was ready: can its user execute the daemon's program, and have a dozen more threads (ulimit -u)?")
	case string(b) != ready:
		return code.New(code.BadArg, "%s", b)
	}
	return nil
}

// Dial reaches the supervisor of the session whose directory is dir. It must run
// as user uid: what is in the directory is that user's, and may lead elsewhere.
func Dial(ctx context.Context, dir *os.File, uid uint32, g Greeting) (*Client, error) {
	d := net.Dialer{Control: unix.TakesNoRights}
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	// By the descriptor, because socket paths are short.
	nc, err := d.DialContext(ctx, "unixpacket", fmt.Sprintf("/proc/self/fd/%d/socket", dir.Fd()))
	if err != nil {
		return nil, fmt.Errorf("reach the supervisor of session %q: %w", g.Session, err)
	}
	u := nc.(*net.UnixConn)
	cred, err := unix.PeerCred(u)
	if err == nil && cred.UID != uid {
		err = fmt.Errorf("the supervisor of session %q runs as user %d, not %d", g.Session, cred.UID, uid)
	}
	if err != nil {
		nodeproto.HangUp(u)
		return nil, err
	}
	c := &Client{real: cred.PID, uid: uid, conn: nodeproto.NewConn(u, func(_ context.Context, _ nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
		foreign.Close(fds...)
		return nil, nil, code.New(code.BadArg, "a daemon answers no supervisor")
	})}
	if c.State, err = call[State](ctx, c, Greet, g); err == nil && len(c.Base) > 2*maxDirectory {
		err = code.New(code.Protocol,
			"the supervisor of session %q names a base directory of %d bytes", g.Session, len(c.Base))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close hangs up.
func (c *Client) Close() {
	c.conn.Close()
	<-c.conn.Done()
}

// Done is closed when the supervisor is gone.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Real is the supervisor's pid in the kernel, or -1. It is the pid of the process that began
// to listen. Another process may have it now, but a process of another user is not taken for
// the supervisor.
func (c *Client) Real() int {
	if uid, ok := userOf(c.real); c.real > 1 && ok && uid == c.uid {
		return c.real
	}
	return -1
}

// Wake continues a supervisor that was stopped by a signal.
func (c *Client) Wake() {
	if p := c.Real(); p > 0 {
		_ = unix.Wake(p)
	}
}

// Kill ends a supervisor that does not answer.
func (c *Client) Kill() {
	if p := c.Real(); p > 0 {
		_ = unix.Kill(p, int(syscall.SIGKILL))
	}
}

func call[T any](ctx context.Context, c *Client, m nodeproto.Method, in any) (T, error) {
	v, fds, err := nodeproto.Ask[T](ctx, c.conn, m, in, nil)
	foreign.Close(fds...) // an honest supervisor sends none
	return v, err
}

// Start starts a program.
func (c *Client) Start(ctx context.Context, o Order) (Program, error) {
	return call[Program](ctx, c, Start, o)
}

// Note lists a process that has joined; Leave says that it has left.
func (c *Client) Note(ctx context.Context, p Program) error {
	_, err := call[nodeproto.Empty](ctx, c, Note, p)
	return err
}

// Leave is told of a process that was noted.
func (c *Client) Leave(ctx context.Context, pid uint32) error {
	_, err := call[nodeproto.Empty](ctx, c, Leave, ListRequest{After: pid})
	return err
}

// List gives programs, a page at a time, in the order of their pids. A supervisor is its user's,
// and may answer anything: what is out of order is an error, so that pages have an end.
func (c *Client) List(ctx context.Context, r ListRequest) (Listing, error) {
	l, err := call[Listing](ctx, c, List, r)
	if err != nil {
		return l, err
	}
	last := r.After
	for _, p := range l.Programs {
		if p.PID <= last {
			return Listing{}, code.New(code.Protocol,
				"the session's supervisor lists process %d after %d", p.PID, last)
		}
		last = p.PID
	}
	l.More = l.More && len(l.Programs) > 0
	return l, nil
}

// Await waits for a program's end.
func (c *Client) Await(ctx context.Context, r AwaitRequest) (Program, error) {
	return call[Program](ctx, c, Await, r)
}

// Signal signals one program or all.
func (c *Client) Signal(ctx context.Context, r SignalRequest) (int, error) {
	s, err := call[Signalled](ctx, c, Signal, r)
	return s.Programs, err
}

// Read gives a piece of output.
func (c *Client) Read(ctx context.Context, r ReadRequest) (Chunk, error) {
	return call[Chunk](ctx, c, Read, r)
}

// End ends the session's programs and the supervisor.
func (c *Client) End(ctx context.Context) (Leftovers, error) {
	return call[Leftovers](ctx, c, End, nodeproto.Empty{})
}

// Attend holds a program's input or terminal until ctx ends or the program does, or a run group's
// lease until ctx ends.
func (c *Client) Attend(ctx context.Context, r AttendRequest) error {
	_, err := call[nodeproto.Empty](ctx, c, Attend, r)
	return err
}

// Write gives a program input.
func (c *Client) Write(ctx context.Context, r WriteRequest) (Written, error) {
	return call[Written](ctx, c, Write, r)
}

// Resize changes the size of a program's terminal.
func (c *Client) Resize(ctx context.Context, r ResizeRequest) error {
	_, err := call[nodeproto.Empty](ctx, c, Resize, r)
	return err
}

//go:build linux

package daemon_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/supervise"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// parentOf is the supervisor of a program, as the kernel has it.
func parentOf(t *testing.T, real int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", real))
	if err != nil {
		t.Fatal(err)
	}
	parent, err := strconv.Atoi(strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// A program may stop its supervisor; that keeps nothing alive.
func TestStoppedSupervisorIsEnded(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	_, real := sleeper(t, s)
	sup := parentOf(t, real[0])
	if err := syscall.Kill(sup, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DeleteSession(t.Context(), connect.NewRequest(&nodev1.DeleteSessionRequest{
		Name: "job",
	})); err != nil {
		t.Error(err)
	}
	for _, r := range append(real, sup) {
		reaped(t, r)
	}
}

// replaceSupervisor takes the socket of session "job" on node a and kills the supervisor, which is
// the parent of program. The one that takes its place answers with what answer returns, nil for an
// error. end ends it.
func replaceSupervisor(t *testing.T, c *sessionCluster, program int,
	answer func(context.Context, nodeproto.Method, []byte) any,
) (end func()) {
	t.Helper()
	socket := c.at("state-a/run/job/socket")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		u, err := l.AcceptUnix()
		l.Close()
		if err != nil {
			return
		}
		conn := nodeproto.NewConn(u, func(ctx context.Context, m nodeproto.Method, body []byte,
			_ []int,
		) (any, []int, error) {
			if m == supervise.Greet {
				return supervise.State{Base: "/"}, nil, nil
			}
			if a := answer(ctx, m, body); a != nil {
				return a, nil, nil
			}
			return nil, nil, code.New(code.BadArg, "not by me")
		})
		<-over
		conn.Close()
		<-conn.Done()
	}()
	if err := syscall.Kill(parentOf(t, program), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return func() {
		close(over)
		<-done
	}
}

// A supervisor is its user's, who may put another program in its place. That program claims the pid
// of a process that is not its own.
func TestSupervisorClaimsAnothersPID(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	_, real := sleeper(t, s)
	victim, err := vmmc.Open(t.Context(), vmmc.WithSocket(c.nodes["a"].Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Close()

	told := make(chan struct{}, 1)
	end := replaceSupervisor(t, c, real[0], func(ctx context.Context, m nodeproto.Method,
		body []byte,
	) any {
		switch m {
		case supervise.List:
			r, _ := nodeproto.Decode[supervise.ListRequest](body)
			if r.After != 0 {
				told <- struct{}{}
				return supervise.Listing{}
			}
			return supervise.Listing{More: true, Programs: []supervise.Program{
				{PID: uint32(victim.ID().PID), Group: 1, Token: "stolen"},
			}}
		case supervise.Await:
			<-ctx.Done()
		}
		return nil
	})
	<-told
	t.Setenv(nodeproto.TokenEnv, "stolen")
	thief, err := vmmc.Open(t.Context(), vmmc.WithSocket(c.nodes["a"].Socket()))
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	if thief.ID().PID == victim.ID().PID {
		t.Errorf("two processes are %v", victim.ID())
	}
	for _, r := range real { // the daemon does not know that the supervisor was not
		_ = syscall.Kill(r, syscall.SIGKILL)
	}
	end()
}

// A supervisor that says at once, and again, that a program has not ended does not keep the daemon
// busy.
func TestSupervisorThatDoesNotWait(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	_, real := sleeper(t, s)
	var asked atomic.Int32
	end := replaceSupervisor(t, c, real[0], func(_ context.Context, m nodeproto.Method,
		body []byte,
	) any {
		switch m {
		case supervise.List:
			return supervise.Listing{}
		case supervise.Start:
			if o, err := nodeproto.Decode[supervise.Order](body); err == nil {
				return supervise.Program{PID: o.PID, Group: o.Group, Real: os.Getpid()}
			}
		case supervise.Await:
			asked.Add(1)
			return supervise.Program{}
		}
		return nil
	})
	for { // until the supervisor is the other one
		r, err := s.Run(t.Context(), connect.NewRequest(&nodev1.RunRequest{
			Session: "job", Path: []byte("/bin/true"), Directory: []byte("/"),
		}))
		if err == nil && r.Msg.GetProcess().GetRealPid() == uint32(os.Getpid()) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond) // of which an idle daemon uses nothing
	if n := asked.Load(); n > 10 {
		t.Errorf("asked %d times", n)
	}
	for _, r := range real {
		_ = syscall.Kill(r, syscall.SIGKILL)
	}
	end()
}

// A supervisor that dies takes connections until its last descriptor is closed. A
// daemon that starts just then finds what that one left, and ends it.
func TestDaemonStartsWhileASupervisorDies(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	_, real := sleeper(t, s)
	c.nodes["a"].Close()
	if err := syscall.Kill(parentOf(t, real[0]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	socket := c.at("state-a/run/job/socket")
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.SetDeadline(time.Now().Add(bound))
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.Close()
		for range 3 {
			if u, err := l.AcceptUnix(); err == nil {
				_ = u.Close()
			}
		}
	}()
	c.start("a")
	<-done
	for _, r := range real {
		dead(t, r)
	}
}

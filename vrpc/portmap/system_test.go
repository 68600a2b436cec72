package portmap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vrpc"
)

func init() {
	testutil.RegisterRole("system", func() int { return report(system()) })
	testutil.RegisterRole("embedded", func() int { return report(embedded()) })
}

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A server registers with Debian's rpcbind, and Debian's rpcinfo finds and calls it; and rpcinfo
// takes our rpcbind for one. Each in a network of its own.
func TestDebian(t *testing.T) {
	for _, program := range []string{"rpcbind", "rpcinfo"} {
		_, err := find(program)
		testutil.Require(t, err == nil, "there is no "+program+": install rpcbind")
	}
	for _, role := range []string{"system", "embedded"} {
		t.Run(role, func(t *testing.T) {
			ns := testutil.NewNet(t, 1)[0]
			if out, err := ns.Enter(testutil.Command(t, role)).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// find finds a program where administrators' are too.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(dir + program); err == nil {
			return dir + program, nil
		}
	}
	return "", exec.ErrNotFound
}

func run(ctx context.Context, program string, args ...string) (string, error) {
	path, err := find(program)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %q: %w: %s", program, args, err, out)
	}
	return string(out), err
}

// target is a server that rpcinfo is to find.
type target struct {
	*vrpc.Server
	tcp net.Listener
	udp net.PacketConn
	wg  sync.WaitGroup
}

const number = 0x20000999

func listen(tcp, udp string) (*target, error) {
	s := &target{Server: vrpc.NewServer()}
	var err, err2 error
	s.tcp, err = net.Listen("tcp4", tcp)
	s.udp, err2 = net.ListenPacket("udp4", udp)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	s.wg.Go(func() { _ = s.Serve(s.tcp) })
	s.wg.Go(func() { _ = s.ServePacket(s.udp) })
	return s, nil
}

func (s *target) close() {
	_ = s.Close()
	s.wg.Wait()
}

// system runs Debian's rpcbind. ip netns has given this process mounts of its own, so that
// no other process sees rpcbind's socket.
func system() error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if _, err := run(ctx, "mount", "-t", "tmpfs", "none", "/run"); err != nil {
		return err
	}
	path, err := find("rpcbind")
	if err != nil {
		return err
	}
	daemon := exec.CommandContext(ctx, path, "-f")
	daemon.Stderr = os.Stderr
	if err := daemon.Start(); err != nil {
		return err
	}
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	}()
	c, err := Local(ctx)
	for ; err != nil && ctx.Err() == nil; c, err = Local(ctx) {
		time.Sleep(10 * time.Millisecond) // rpcbind does not announce that it is ready
	}
	if err != nil {
		return err
	}
	defer c.Close()
	return found(ctx, c)
}

// embedded is an rpcbind itself.
func embedded() error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if _, err := run(ctx, "mount", "-t", "tmpfs", "none", "/run"); err != nil {
		return err
	}
	at := fmt.Sprintf("0.0.0.0:%d", Port)
	s, err := listen(at, at)
	if err != nil {
		return err
	}
	defer s.close()
	b, err := NewServer(s.tcp.Addr(), s.udp.LocalAddr())
	if err != nil {
		return err
	}
	if err := b.Register(s); err != nil {
		return err
	}
	c, err := Local(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return found(ctx, c)
}

// found registers a server, and has rpcinfo find it, call it, and find it gone.
func found(ctx context.Context, c *Client) error {
	s, err := listen("0.0.0.0:0", "0.0.0.0:0")
	if err != nil {
		return err
	}
	defer s.close()
	for version := uint32(1); version <= 2; version++ {
		if err := s.Register(&vrpc.Service{Name: "TARGET", Program: number, Version: version}); err != nil {
			return err
		}
	}
	if err := c.Register(ctx, "vmmc", s.Services(), s.tcp.Addr(), s.udp.LocalAddr()); err != nil {
		return err
	}
	port := s.tcp.Addr().(*net.TCPAddr).Port
	list, err := run(ctx, "rpcinfo", "-p", "127.0.0.1")
	if err != nil {
		return err
	}
	if !regexp.MustCompile(fmt.Sprintf(`(?m)^\s*%d\s+2\s+tcp\s+%d\b`, number, port)).MatchString(list) {
		return fmt.Errorf("rpcinfo does not find port %d:\n%s", port, list)
	}
	for _, network := range []string{"tcp", "udp"} {
		out, err := run(ctx, "rpcinfo", "-T", network, "127.0.0.1", fmt.Sprint(number))
		if err != nil {
			return err
		}
		if n := len(regexp.MustCompile(`version [12] ready and waiting`).FindAllString(out, -1)); n != 2 {
			return fmt.Errorf("rpcinfo -T %s: %d versions answer:\n%s", network, n, out)
		}
	}
	m, err := c.Find(ctx, number, 2, "udp")
	if err != nil {
		return err
	}
	if _, address, err := m.Endpoint(); err != nil || netPort(address) != s.udp.LocalAddr().(*net.UDPAddr).Port {
		return fmt.Errorf("%+v is found, %w", m, err)
	}
	if err := c.Unregister(ctx, s.Services(), s.tcp.Addr(), s.udp.LocalAddr()); err != nil {
		return err
	}
	if _, err := c.Find(ctx, number, 2, "udp"); !errors.Is(err, ErrNotRegistered) {
		return fmt.Errorf("it is still found: %w", err)
	}
	return nil
}

func netPort(address string) int {
	a, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return 0
	}
	return a.Port
}

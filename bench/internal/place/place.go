// Package place has the places that two ends are measured in: one machine's memory, the loopback of
// a network namespace, and two network namespaces joined by veth. The namespaces are made here and
// always deleted. Their TCP has a congestion control that does not pace, whatever this machine's
// does: with BBR, which spreads what is sent over time, all over TCP is a draw of two speeds.
package place

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// Place is where two ends are. The near end starts what is measured.
type Place struct {
	Name   string
	Device string    // of the network between the ends
	Addr   [2]string // IPv4 of the near and the far end
	NS     [2]string // their namespaces, as "ip netns" names them; empty: this one
}

// The sides of a place.
const (
	Near = 0
	Far  = 1
)

// Memory is the place of ends that share memory.
func Memory() *Place { return &Place{Name: sample.Local, Addr: [2]string{"127.0.0.1", "127.0.0.1"}} }

// Loop is the place of ends on one machine that speak TCP.
func Loop() *Place {
	return &Place{Name: sample.Loopback, Device: "lo", Addr: [2]string{"127.0.0.1", "127.0.0.1"}}
}

// NewLoop makes a namespace for that. The caller closes it.
func NewLoop(ctx context.Context) (*Place, error) {
	sweep(ctx)
	p := Loop()
	name := prefix + strconv.Itoa(os.Getpid()) + "-l"
	if err := add(ctx, name); err != nil {
		return nil, err
	}
	p.NS = [2]string{name, name}
	return p, nil
}

// Apart reports whether the ends are in two namespaces.
func (p *Place) Apart() bool { return p.NS[Near] != p.NS[Far] }

const prefix = "vmmcbench-"

// add makes a namespace in which TCP does not pace.
func add(ctx context.Context, name string) error {
	if err := ip(ctx, "netns", "add", name); err != nil {
		return fmt.Errorf("a network namespace, which needs root and iproute2: %w", err)
	}
	err := ip(ctx, "-n", name, "link", "set", "lo", "up")
	// Each kernel has Reno, and allows it in any namespace. The file is that of the namespace of
	// the process that opens it.
	if err == nil {
		err = ip(ctx, "netns", "exec", name, "sh", "-c", "echo reno >/proc/sys/net/ipv4/tcp_congestion_control")
	}
	if err != nil {
		return errors.Join(err, ip(context.Background(), "netns", "del", name))
	}
	return nil
}

// NewVeth makes two namespaces joined by a pair of veth devices. The caller closes them.
func NewVeth(ctx context.Context) (*Place, error) {
	sweep(ctx)
	p := &Place{Name: sample.Veth, Device: "eth0", Addr: [2]string{"10.78.0.1", "10.78.0.2"}}
	for side, letter := range []string{"a", "b"} {
		name := prefix + strconv.Itoa(os.Getpid()) + "-" + letter
		if err := add(ctx, name); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.NS[side] = name
	}
	a, b := p.NS[Near], p.NS[Far]
	for _, line := range []string{
		"-n " + a + " link add eth0 type veth peer name eth0 netns " + b,
		"-n " + a + " addr add 10.78.0.1/24 dev eth0",
		"-n " + b + " addr add 10.78.0.2/24 dev eth0",
		"-n " + a + " link set eth0 up",
		"-n " + b + " link set eth0 up",
	} {
		if err := ip(ctx, strings.Fields(line)...); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	if err := p.up(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// up waits until both devices say so: UCX takes no device that is about to be up.
func (p *Place) up(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for side := range p.NS {
		for {
			out, err := exec.CommandContext(ctx, "ip", "-n", p.NS[side], "link", "show", p.Device).Output()
			if err == nil && bytes.Contains(out, []byte("state UP")) {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s in %s to be up: %w", p.Device, p.NS[side], context.Cause(ctx))
			}
		}
	}
	return nil
}

// Close deletes the namespaces.
func (p *Place) Close() (err error) {
	names := p.NS
	p.NS = [2]string{}
	for side, name := range names {
		if name != "" && (side == Near || name != names[Near]) {
			err = errors.Join(err, ip(context.Background(), "netns", "del", name))
		}
	}
	return err
}

// sweep deletes what a run that was killed has left.
func sweep(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "ip", "netns", "list").Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		owner, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(owner, "-")
		if pid, err := strconv.Atoi(number); err == nil && gone(pid) {
			_ = ip(ctx, "netns", "del", name)
		}
	}
}

func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	return err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Command is a command on one side of the place. When its context ends it is asked to end, so that
// it can end what it started, and then killed.
func (p *Place) Command(ctx context.Context, side int, name string, args ...string) *exec.Cmd {
	if p.NS[side] != "" {
		args = append([]string{"netns", "exec", p.NS[side], name}, args...)
		name = "ip"
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	return cmd
}

// Port is a port that is free now on the far side.
func (p *Place) Port() (string, error) {
	if p.NS[Far] != "" {
		// No other program is in there. The port is outside of the kernel's ephemeral range.
		return strconv.Itoa(20000 + int(time.Now().UnixNano()/1e6)%10000), nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp4", p.Addr[Far]+":0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

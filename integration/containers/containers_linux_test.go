package containers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
)

const bound = time.Minute // of every wait

// role is a process that prints what it does. It runs until it is killed or f returns.
func role(name string, f func(ctx context.Context) error) {
	testutil.RegisterRole(name, func() int {
		ctx, stop := context.WithTimeout(context.Background(), bound)
		defer stop()
		if err := f(ctx); err != nil {
			fmt.Println(name+":", err)
			return 1
		}
		return 0
	})
}

func init() {
	role("daemon", func(ctx context.Context) error {
		n, err := node.Start(node.WithSocket(testutil.Args()[0]))
		if err != nil {
			return err
		}
		defer n.Close()
		fmt.Println("ready")
		<-ctx.Done()
		return nil
	})
	role("serve", func(ctx context.Context) error {
		p, err := vmmc.Open(ctx)
		if err != nil {
			return err
		}
		defer p.Close()
		mem, err := p.Alloc(64)
		if err != nil {
			return err
		}
		e, err := p.Publish(ctx, "board", mem.Bytes())
		if err != nil {
			return err
		}
		fmt.Println("ready")
		last, err := e.Word(60)
		if err != nil {
			return err
		}
		if _, err := last.Wait(ctx, 0); err != nil {
			return err
		}
		fmt.Println(strings.TrimRight(string(mem.Bytes()), "."))
		<-ctx.Done()
		return nil
	})
	role("post", post)
}

// post writes to the board, by a call and by bound memory, and waits for its end.
func post(ctx context.Context) error {
	p, err := vmmc.Open(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	im, err := p.ImportName(ctx, "board")
	if err != nil {
		return err
	}
	here, err := p.Alloc(32)
	if err != nil {
		return err
	}
	b, err := im.Bind(here.Bytes(), 0)
	if err != nil {
		return err
	}
	copy(here.Bytes(), "it came from a container........")
	if err := b.Flush(ctx); err != nil {
		return err
	}
	if err := im.Send(ctx, []byte(strings.Repeat(".", 32)), 32); err != nil {
		return err
	}
	fmt.Println(im.Path())
	<-im.Done()
	fmt.Println(errors.Is(im.Err(), vmmc.ErrPeerGone))
	return b.Close()
}

// container has a command run in namespaces of its own, which share the file system alone.
func container(cmd *exec.Cmd) *exec.Cmd {
	unshare := exec.Command(
		"unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
		"--mount-proc", "--ipc", "--net", "--uts", "--",
	)
	cmd.Args = slices.Concat(unshare.Args, []string{cmd.Path}, cmd.Args[1:])
	cmd.Path, cmd.Err = unshare.Path, unshare.Err
	return cmd
}

func requireNamespaces(t *testing.T) {
	t.Helper()
	testutil.Require(t, os.Getuid() == 0, "namespaces of containers need root")
	out, err := container(exec.Command("true")).CombinedOutput()
	testutil.Require(t, err == nil, fmt.Sprintf("unshare makes no container: %v: %s", err, out))
}

// start starts a role, which joins the daemon at a socket, and gives the lines that it prints.
func start(t *testing.T, cmd *exec.Cmd, socket string) *bufio.Scanner {
	t.Helper()
	cmd.Env = append(cmd.Env, "VMMC_SOCKET="+socket)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return bufio.NewScanner(out)
}

func line(t *testing.T, s *bufio.Scanner, want string) {
	t.Helper()
	if s.Scan(); s.Text() != want {
		t.Fatalf("it printed %q (%v), want %q", s.Text(), s.Err(), want)
	}
}

// exchange has two programs that wrap prepares write to each other's memory, and kills the one.
func exchange(t *testing.T, socket string, wrap func(*exec.Cmd) *exec.Cmd) {
	t.Helper()
	server := wrap(testutil.Command(t, "serve"))
	serves := start(t, server, socket)
	line(t, serves, "ready")
	client := wrap(testutil.Command(t, "post"))
	posts := start(t, client, socket)
	line(t, posts, "mapped")
	line(t, serves, "it came from a container")
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	line(t, posts, "true")
	if err := client.Wait(); err != nil {
		t.Error(err)
	}
	_ = server.Wait()
}

// Containers that have the socket of the machine's daemon share memory: its descriptors come over
// the socket, and no other namespace is shared.
func TestContainersOfOneDaemon(t *testing.T) {
	requireNamespaces(t)
	n, err := node.Start(node.WithSocket(filepath.Join(t.TempDir(), "s")))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	exchange(t, n.Socket(), container)
}

// The daemon may be in a container of its own, whose PID namespace has no number for the programs.
func TestDaemonInAContainer(t *testing.T) {
	requireNamespaces(t)
	socket := filepath.Join(t.TempDir(), "s")
	daemon := container(testutil.Command(t, "daemon", socket))
	line(t, start(t, daemon, socket), "ready")
	exchange(t, socket, container)
}

// A socket without a file is the network namespace's: another container does not find it.
func TestSocketWithoutAFile(t *testing.T) {
	requireNamespaces(t)
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	cmd := container(testutil.Command(t, "serve"))
	cmd.Env = append(cmd.Env, "VMMC_SOCKET="+n.Socket())
	out, err := cmd.Output()
	if err == nil || !strings.Contains(string(out), "serve: ") {
		t.Errorf("a program in another network namespace joins %s: %v\n%s", n.Socket(), err, out)
	}
}

// refused are system calls that profiles of container runtimes refuse without capabilities.
var refused = map[string][]uintptr{
	"amd64": {
		syscall.SYS_PTRACE, syscall.SYS_MOUNT, syscall.SYS_UMOUNT2, syscall.SYS_UNSHARE,
		syscall.SYS_MBIND, syscall.SYS_GET_MEMPOLICY, syscall.SYS_SET_MEMPOLICY,
		298, // perf_event_open
		308, // setns
		310, // process_vm_readv
		311, // process_vm_writev
		312, // kcmp
		321, // bpf
		323, // userfaultfd
		425, // io_uring_setup
		438, // pidfd_getfd
	},
}

// Behind such a filter nothing is missing: automatic update compares where it cannot be told.
func TestFilterOfSystemCalls(t *testing.T) {
	calls, ok := refused[runtime.GOARCH]
	testutil.Require(t, ok, "the numbers of the calls are those of amd64")
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	exchange(t, n.Socket(), func(cmd *exec.Cmd) *exec.Cmd {
		testutil.Without(t, cmd, calls...)
		return cmd
	})
}

package containers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
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
	im, err := p.ImportName(ctx, testutil.Args()[0])
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

// side is where one of two programs runs.
type side struct {
	socket string
	wrap   func(*exec.Cmd) *exec.Cmd
}

// exchange has one program write to the other's memory, and kills that.
func exchange(t *testing.T, server, client side, name, path string) {
	t.Helper()
	serve := server.wrap(testutil.Command(t, "serve"))
	serves := start(t, serve, server.socket)
	line(t, serves, "ready")
	post := client.wrap(testutil.Command(t, "post", name))
	posts := start(t, post, client.socket)
	line(t, posts, path)
	line(t, serves, "it came from a container")
	if err := serve.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	line(t, posts, "true")
	if err := post.Wait(); err != nil {
		t.Error(err)
	}
	_ = serve.Wait()
}

// same is an exchange of two programs that run alike.
func same(t *testing.T, socket string, wrap func(*exec.Cmd) *exec.Cmd) {
	t.Helper()
	exchange(t, side{socket, wrap}, side{socket, wrap}, "board", "mapped")
}

// listen starts a node whose socket other users may use, too.
func listen(t *testing.T) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmmc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n, err := node.Start(node.WithSocket(filepath.Join(dir, "s")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(n.Socket(), 0o666)); err != nil {
		t.Fatal(err)
	}
	return n.Socket()
}

// Containers that have the socket of the machine's daemon share memory: its descriptors come over
// the socket, and no other namespace is shared.
func TestContainersOfOneDaemon(t *testing.T) {
	requireNamespaces(t)
	same(t, listen(t), container)
}

// The daemon may be in a container of its own, whose PID namespace has no number for the programs.
func TestDaemonInAContainer(t *testing.T) {
	requireNamespaces(t)
	socket := filepath.Join(t.TempDir(), "s")
	daemon := container(testutil.Command(t, "daemon", socket))
	line(t, start(t, daemon, socket), "ready")
	same(t, socket, container)
}

// rootless is a container with a user namespace, in which the user is root.
func rootless(cmd *exec.Cmd) *exec.Cmd {
	cmd = container(cmd)
	cmd.Args = slices.Insert(cmd.Args, 1, "--user", "--map-root-user")
	return cmd
}

// Where a user namespace has a number for the daemon's user, nothing is different.
func TestUserNamespace(t *testing.T) {
	requireNamespaces(t)
	same(t, listen(t), rootless)
}

// Where it has none, the kernel shows the daemon as nobody's, and programs do not trust that.
func TestUserNamespaceWithoutTheDaemonsUser(t *testing.T) {
	requireNamespaces(t)
	setpriv, err := exec.LookPath("setpriv")
	testutil.Require(t, err == nil, "needs the program setpriv")
	socket := listen(t)
	cmd := testutil.Command(t, "serve")
	cmd.Path = testutil.CopyProgram(t, cmd.Path, filepath.Dir(socket)) // where the user may read it
	if err := os.Chmod(cmd.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd = rootless(cmd)
	cmd.Args = slices.Concat(
		[]string{setpriv, "--reuid=64077", "--regid=64077", "--clear-groups"}, cmd.Args,
	)
	cmd.Path = setpriv
	out := start(t, cmd, socket)
	if out.Scan(); !strings.Contains(out.Text(), "not to be trusted") {
		t.Errorf("it printed %q", out.Text())
	}
	_ = cmd.Wait()
}

// A program without a network exports to other nodes: its daemon hands it their connections. It
// cannot import from them, as the importer makes the connection.
func TestContainerWithoutANetwork(t *testing.T) {
	requireNamespaces(t)
	layout, err := cluster.Prepare(t.TempDir(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range layout.Nodes {
		id, err := cert.Load(n.Certs)
		if err != nil {
			t.Fatal(err)
		}
		d, err := daemon.Start(daemon.Config{
			Name: n.Name, Listen: layout.Hosts[i].Control, Socket: n.Socket, Hosts: layout.Hosts,
			Identity: id, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
	}
	here := func(cmd *exec.Cmd) *exec.Cmd { return cmd }
	one, two := layout.Nodes[0].Socket, layout.Nodes[1].Socket
	exchange(t, side{one, container}, side{two, here}, "n1/board", "stream")

	server := testutil.Command(t, "serve")
	line(t, start(t, server, one), "ready")
	posts := start(t, container(testutil.Command(t, "post", "n1/board")), two)
	if posts.Scan(); !strings.Contains(posts.Text(), "unreachable") {
		t.Errorf("it printed %q", posts.Text())
	}
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
	same(t, n.Socket(), func(cmd *exec.Cmd) *exec.Cmd {
		testutil.Without(t, cmd, calls...)
		return cmd
	})
}

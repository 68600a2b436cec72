package tutorial

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

var block = regexp.MustCompile("(?s)```(sh|text)\n(.*?)```\n")

// stepBound is for a step that has everything built on a busy machine.
const stepBound = 5 * time.Minute

// The commands of docs/tutorial.md work in a fresh clone, and print what it shows.
func TestTutorial(t *testing.T) {
	testutil.Require(t, !testing.Short(), "builds all commands")
	testutil.Require(t, !raceEnabled, "the programs are built without the race detector: it has nothing to see here")
	page, err := os.ReadFile("../../docs/tutorial.md")
	check(t, err)
	steps := block.FindAllStringSubmatch(string(page), -1)
	if len(steps) == 0 {
		t.Fatal("the tutorial has no steps")
	}
	dir := t.TempDir()
	clone(t, dir)
	here := begin(t, dir, nil)
	for _, s := range steps[:len(steps)-1] {
		here.do(t, s)
	}
	t.Run("TwoMachines", func(t *testing.T) { twoMachines(t, dir, string(page)) })
	here.do(t, steps[len(steps)-1]) // cleans up
	here.end(t)
}

// twoMachines does what the tutorial says of two machines on two of them: network namespaces, each
// with a directory that has what the reader is told to copy.
func twoMachines(t *testing.T, dir, page string) {
	net := testutil.NewNet(t, 2)
	_, page, ok := strings.Cut(page, "\n## 6. Two machines\n")
	page, clean, ok2 := strings.Cut(page, "\n## 7. ")
	_, left, ok3 := strings.Cut(page, "\nOn the left machine:\n")
	left, right, ok4 := strings.Cut(left, "\nOn the right machine:\n")
	if !ok || !ok2 || !ok3 || !ok4 {
		t.Fatal("the tutorial has no steps for a left and a right machine")
	}
	list, err := os.ReadFile(filepath.Join(dir, "nodes.txt"))
	check(t, err)
	list = bytes.ReplaceAll(list, []byte("127.0.0.1"), []byte(net[0].Addr))
	list = bytes.ReplaceAll(list, []byte("127.0.0.2"), []byte(net[1].Addr))
	var shells []*shell
	for i, name := range []string{"left", "right"} {
		its := t.TempDir()
		check(t, os.CopyFS(filepath.Join(its, "bin"), os.DirFS(filepath.Join(dir, "bin"))))
		id := filepath.Join("identities", name)
		check(t, os.CopyFS(filepath.Join(its, id), os.DirFS(filepath.Join(dir, id))))
		check(t, os.Chmod(filepath.Join(its, id, "key.pem"), 0o600))
		check(t, os.WriteFile(filepath.Join(its, "nodes.txt"), list, 0o644))
		shells = append(shells, begin(t, its, net[i]))
	}
	for _, s := range block.FindAllStringSubmatch(left, -1) {
		shells[0].do(t, s)
	}
	for _, s := range block.FindAllStringSubmatch(right, -1) {
		if s[1] == "text" { // the right machine has written, and the left one shows it
			shells[0].do(t, s)
			continue
		}
		shells[1].do(t, s)
	}
	for i, sh := range shells {
		if got := listening(t, net[i]); !slices.Equal(got, []string{"7411"}) {
			t.Errorf("machine %d listens at the TCP ports %v, and its node needs 7411 alone", i, got)
		}
		stop := block.FindStringSubmatch(clean)
		stop[2], _, _ = strings.Cut(stop[2], "\nrm ")
		sh.do(t, stop)
		sh.end(t)
	}
}

// listening gives the TCP ports at which something listens.
func listening(t *testing.T, ns *testutil.NS) (ports []string) {
	t.Helper()
	b, err := ns.Command("cat", "/proc/net/tcp", "/proc/net/tcp6").Output()
	check(t, err)
	for l := range strings.Lines(string(b)) {
		f := strings.Fields(l)
		if len(f) < 4 || f[3] != "0A" {
			continue
		}
		_, port, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		check(t, err)
		ports = append(ports, strconv.FormatUint(n, 10))
	}
	return ports
}

// shell is a shell that a reader types in.
type shell struct {
	io.WriteCloser
	out *output
	err error // how it has ended, once out.ended is closed
}

// do types a step, or waits for what it shows.
func (sh *shell) do(t *testing.T, s []string) {
	t.Helper()
	if s[1] == "sh" {
		sh.out.next()
		_, err := io.WriteString(sh, "{\n"+s[2]+"\n} </dev/null\necho 'step done'\n")
		check(t, err)
		sh.out.await(t, "step done\n", s[2])
		return
	}
	for line := range strings.Lines(s[2]) {
		sh.out.await(t, line, "what it shows: "+s[2])
	}
}

// end has no more to type.
func (sh *shell) end(t *testing.T) {
	t.Helper()
	check(t, sh.Close())
	<-sh.out.ended
	check(t, sh.err)
}

// begin starts a shell in a directory: on the machine ns, or in a network of its own where that can
// be.
func begin(t *testing.T, dir string, ns *testutil.NS) *shell {
	t.Helper()
	args := []string{"bash", "-e"}
	if ns == nil && exec.Command("unshare", "--net", "ip", "link", "set", "lo", "up").Run() == nil {
		args = slices.Concat([]string{"unshare", "--net", "bash", "-c", `ip link set lo up; exec "$@"`, "bash"}, args)
	}
	c := exec.Command(args[0], args[1:]...)
	if ns != nil {
		c = ns.Enter(c)
	}
	sh := &shell{out: &output{ended: make(chan struct{})}}
	c.Dir, c.Stdout, c.Stderr = dir, sh.out, sh.out
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "VMMC_") })
	c.Env = append(
		c.Env, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_RUNTIME_DIR="+dir,
		"GOFLAGS=-buildvcs=false",
	)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the tutorial starts and a failure leaves
	c.WaitDelay = testutil.Slack                        // for a program that it leaves behind
	var err error
	sh.WriteCloser, err = c.StdinPipe()
	check(t, err)
	check(t, c.Start())
	go func() {
		sh.err = c.Wait()
		close(sh.out.ended)
	}()
	t.Cleanup(func() {
		select {
		case <-sh.out.ended:
			return
		default:
		}
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		<-sh.out.ended
		down := exec.Command(filepath.Join(dir, "bin/vmmc"), "cluster", "down")
		down.Env, down.Dir = c.Env, dir
		_ = down.Run()
	})
	return sh
}

// clone makes a clone, as a reader does, and puts in what has been changed and is not committed.
func clone(t *testing.T, to string) {
	t.Helper()
	git := func(args ...string) []byte {
		t.Helper()
		// A checkout may belong to another user than the tests run as.
		c := exec.CommandContext(t.Context(), "git", append([]string{"-c", "safe.directory=*", "-C", "../.."}, args...)...)
		out, err := c.Output()
		testutil.Require(t, err == nil, "needs git, and a checkout of its")
		return out
	}
	top := strings.TrimSpace(string(git("rev-parse", "--show-toplevel")))
	git("clone", "--quiet", "--shared", top, to)
	changed := git("diff", "--name-only", "--relative", "-z", "HEAD")
	for name := range strings.SplitSeq(strings.TrimRight(string(changed), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(top, name))
		at := filepath.Join(to, name)
		if os.IsNotExist(err) {
			check(t, os.Remove(at))
			continue
		}
		check(t, err)
		check(t, os.MkdirAll(filepath.Dir(at), 0o755))
		check(t, os.WriteFile(at, b, 0o644))
	}
}

// output is what the shell and its programs have printed.
type output struct {
	ended chan struct{} // closed when the shell has ended

	mu   sync.Mutex
	all  bytes.Buffer
	step int // where that of the last step begins
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) next() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.step = o.all.Len()
}

func (o *output) text() (all, step string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all = o.all.String()
	return all, all[o.step:]
}

// await waits for a line of a step. Programs run beside each other: lines come in any order.
func (o *output) await(t *testing.T, line, step string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(stepBound)
	for {
		all, of := o.text()
		if strings.Contains(of, strings.TrimSuffix(line, "\n")) {
			return
		}
		select {
		case <-tick.C:
		case <-o.ended:
			t.Fatalf("the shell ended before %q was printed by\n%s\nAll that was printed:\n%s", line, step, all)
		case <-late:
			t.Fatalf("%q is not printed by\n%s\nAll that was printed:\n%s", line, step, all)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

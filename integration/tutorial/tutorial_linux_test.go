package tutorial

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

var block = regexp.MustCompile("(?s)```(sh|text)\n(.*?)```\n")

// stepBound is for a step that has everything built on a busy machine.
const stepBound = 3 * time.Minute

// The commands of docs/tutorial.md work in a fresh clone, and print what it shows.
func TestTutorial(t *testing.T) {
	testutil.Require(t, !testing.Short(), "builds all commands")
	page, err := os.ReadFile("../../docs/tutorial.md")
	check(t, err)
	steps := block.FindAllStringSubmatch(string(page), -1)
	if len(steps) == 0 {
		t.Fatal("the tutorial has no steps")
	}
	shell, out := begin(t)
	for _, s := range steps {
		if s[1] == "sh" {
			out.next()
			_, err := io.WriteString(shell, "{\n"+s[2]+"\n} </dev/null\necho 'step done'\n")
			check(t, err)
			out.await(t, "step done\n", s[2])
			continue
		}
		for line := range strings.Lines(s[2]) {
			out.await(t, line, "what it shows: "+s[2])
		}
	}
}

// begin starts a shell in a copy of the tree, and in a network of its own where that can be.
func begin(t *testing.T) (io.Writer, *output) {
	t.Helper()
	dir := t.TempDir()
	copyTree(t, dir)
	args := []string{"bash", "-e"}
	if exec.Command("unshare", "--net", "ip", "link", "set", "lo", "up").Run() == nil {
		args = slices.Concat([]string{"unshare", "--net", "bash", "-c", `ip link set lo up; exec "$@"`, "bash"}, args)
	}
	c := exec.Command(args[0], args[1:]...)
	out := &output{ended: make(chan struct{})}
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "VMMC_") })
	c.Env = append(c.Env, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_RUNTIME_DIR="+dir, "GOFLAGS=-buildvcs=false")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the tutorial starts and a failure leaves
	c.WaitDelay = testutil.Slack                        // for a program that it leaves behind
	in, err := c.StdinPipe()
	check(t, err)
	check(t, c.Start())
	go func() {
		err = c.Wait()
		close(out.ended)
	}()
	t.Cleanup(func() {
		_ = in.Close()
		if !t.Failed() {
			<-out.ended
			check(t, err)
			return
		}
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		<-out.ended
		down := exec.Command(filepath.Join(dir, "bin/vmmc"), "cluster", "down")
		down.Env, down.Dir = c.Env, dir
		_ = down.Run()
	})
	return in, out
}

// copyTree copies what git knows of, as a clone has it.
func copyTree(t *testing.T, to string) {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = "../.."
	names, err := list.Output()
	testutil.Require(t, err == nil, "needs git, and a checkout of its")
	for name := range strings.SplitSeq(strings.Trim(string(names), "\x00"), "\x00") {
		b, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) || strings.HasPrefix(name, "bench/") {
			continue
		}
		check(t, err)
		at := filepath.Join(to, name)
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

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// A daemon that the system lets have no more processes tells a caller that asks for one, and serves
// all other calls.
func TestNoMoreProcesses(t *testing.T) {
	_, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "needs the go command, to build the daemon")
	f := fenced(t, "pids")
	cl := up(t, 2, nil, nil)
	exe := filepath.Join(cl.dir, "vmmcd")
	install(t, exe)
	kill(t, cl.nodes[0])
	cl.daemon(t, 0, f.around(t, exe), "--spawn-root")
	c := gather(t, cl, 4, func(i int) int { return i % 2 })
	for i := range c.ps {
		c.keeps(t, i, (i+1)%len(c.ps), 0)  // between nodes
		c.keeps(t, i, (i+2)%len(c.ps), 64) // on one
	}
	end := c.start(t)
	argv := testutil.Argv(t, "linger")
	where := c.ps[0].Node()
	a, err := (&ask.Flags{Socket: cl.socket(0), Nodes: []string{"n0"}}).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	run := func() error {
		_, err := a.Chosen[0].Client.Run(patience(t), connect.NewRequest(&nodev1.RunRequest{Session: "before", Path: []byte("true"), Directory: []byte("/")}))
		return err
	}
	add := func(name string) error {
		return a.AddSession(patience(t), &nodev1.AddSessionRequest{Name: name, Drive: "-", Share: t.TempDir(), OutputDirectory: "/"})
	}
	if err := errors.Join(add("before"), run()); err != nil {
		t.Fatal(err)
	}

	// Whether those below need more threads than the daemon has is chance; what it has for them is
	// not.
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", cl.nodes[0].Process.Pid))
	if err != nil || len(tasks) < 32 {
		t.Errorf("the daemon has %d threads (%v)", len(tasks), err)
	}
	f.set(t, "pids.max", "1") // the daemon has more, whatever threads it ends
	refused := func(err error) {
		if err = ask.ErrorOf(a.Chosen[0], err); !errors.Is(err, code.NoMem) || !strings.Contains(err.Error(), "pids.max") {
			t.Errorf("there is no room for a process: %v", err)
		}
	}
	var wg sync.WaitGroup
	for i := range 8 { // which may need as many threads twice, and there are more
		wg.Go(func() {
			for range 16 {
				_, err := c.ps[i%len(c.ps)].Spawn(patience(t), where, argv[0], argv[1:]...)
				refused(err)
				refused(run())
			}
		})
		wg.Go(func() {
			for range 4 {
				c.served(t, cl, 0)
			}
		})
	}
	wg.Wait()
	refused(add("after"))
	f.set(t, "pids.max", "max")
	for _, p := range c.ps[:2] { // of either node
		pid, err := p.Spawn(patience(t), where, argv[0], argv[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		if err := import1(t, c.ps[0], 0, pid, 1).Send(t.Context(), []byte{1, 0, 0, 0}, 0); err != nil {
			t.Error(err)
		}
	}
	end()
	for _, err := range []error{run(), add("after"), a.DeleteSession(patience(t), "before", t.Output()), a.DeleteSession(patience(t), "after", t.Output())} {
		if err != nil {
			t.Error(err)
		}
	}
}

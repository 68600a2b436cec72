package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("devour", child(devour)) }

// ration is what a process may have of memory.
const ration = 64 << 20

// devour exports buffer 1 and adds to a word of other processes, given by node and pid; when the
// first word of its own is not 0, it takes memory, and exports it, without end.
func devour(ctx context.Context, p *vmmc.Process, args []string) error {
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	exp, err := p.Export(1, m.Bytes())
	if err != nil {
		return err
	}
	for ; len(args) > 0; args = args[2:] {
		node, pid, err := target(p, args[0], args[1])
		if err != nil {
			return err
		}
		im, err := p.Import(ctx, node, pid, 1)
		if err != nil {
			return err
		}
		if _, err := im.FetchAdd64(ctx, 2048, 1); err != nil {
			return err
		}
	}
	fmt.Println("in")
	w, err := exp.Word(0)
	if err != nil {
		return err
	}
	if _, err := w.Wait(ctx, 0); err != nil {
		return err
	}
	for i := range uint32(16) { // of the Go heap: Alloc would not give what the system does not have
		all := make([]byte, ration/8)
		for b := all; len(b) > 0; b = b[4096:] {
			b[0] = 1
		}
		if _, err := p.Export(2+i, all); err != nil {
			return err
		}
	}
	return errors.New("the system has bounded nothing")
}

// A process that the kernel kills for the memory that it takes is gone at once for all that it had
// to do with, and nothing of it is left; all others go on.
func TestKilledForMemory(t *testing.T) {
	f := fenced(t, "memory")
	limit, swap, used, killed := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"
	bound := strconv.Itoa(ration)
	if f.unified {
		limit, swap, used, killed = "memory.max", "memory.swap.max", "memory.current", "memory.events"
	}
	f.set(t, limit, bound)
	if !f.unified { // where swap is not counted it is not to be used
		f.set(t, "memory.swappiness", "0")
	}
	if _, err := os.Stat(f.dir + "/" + swap); err == nil { // else there is none, or it is not counted
		f.set(t, swap, map[bool]string{true: "0", false: bound}[f.unified])
	}
	for node := range 2 {
		t.Run(fmt.Sprintf("on n%d", node), func(t *testing.T) {
			cl := up(t, 2, nil, nil)
			c := gather(t, cl, 4, func(i int) int { return i % 2 })
			for i := range c.ps {
				c.keeps(t, i, (i+1)%len(c.ps), 0)  // between nodes
				c.keeps(t, i, (i+2)%len(c.ps), 64) // on one
			}
			end := c.start(t)
			c.served(t, cl, node)
			before := [2]int{held(t, cl, 0), held(t, cl, 1)}

			pid, cmd, r := spawn(t, cl, node, "devour", "n0", number(c.ps[0].PID()), "n1", number(c.ps[1].PID()))
			says(t, r, "in")
			var ims []*vmmc.Import
			for _, p := range c.ps {
				ims = append(ims, import1(t, p, node, pid, 1))
			}
			for _, im := range ims {
				if err := im.Send(t.Context(), []byte{1, 0, 0, 0}, 4); err != nil {
					t.Fatal(err)
				}
			}
			f.enter(t, cmd.Process.Pid)
			if err := ims[3].Send(t.Context(), []byte{1, 0, 0, 0}, 0); err != nil {
				t.Fatal(err)
			}
			var how *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &how) || how.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !strings.Contains(f.get(t, killed), fmt.Sprintf("oom_kill %d", node+1)) {
				t.Fatalf("it ended with %v; %s", err, f.get(t, killed))
			}
			for _, im := range ims { // told, and not found out by waiting for it as long as may be
				goneWithin(t, time.Second, func() error { return im.Send(t.Context(), []byte{1, 0, 0, 0}, 4) })
				if err := im.Close(); err != nil {
					t.Error(err)
				}
			}
			for i := range 2 {
				c.served(t, cl, i)
				eventually(t, func() string {
					if n := held(t, cl, i); n > before[i] {
						return fmt.Sprintf("the daemon n%d has %d descriptors, before %d", i, n, before[i])
					}
					return ""
				})
			}
			eventually(t, func() string { // a memory file that anybody has would count
				if n, err := strconv.Atoi(f.get(t, used)); err != nil || n > ration/4 {
					return fmt.Sprintf("%d bytes are left of its memory (%v)", n, err)
				}
				return ""
			})
			end()
		})
	}
}

// held is how many descriptors a daemon has.
func held(t *testing.T, cl *cluster, i int) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cl.nodes[i].Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// eventually waits until there is nothing wrong.
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		s := wrong()
		if s == "" {
			return
		}
		if time.Now().After(end) {
			t.Error(s)
			return
		}
	}
}

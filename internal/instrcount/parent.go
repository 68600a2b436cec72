package instrcount

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// ErrUnsupported means that this system cannot count: it is not Linux on amd64, or does not let a
// process trace its child.
var ErrUnsupported = errors.New("instructions cannot be counted here: that needs Linux on amd64, and a system that lets a process trace its child (ptrace)")

// outputDelay is how long the child's last words are awaited after its end.
const outputDelay = 2 * time.Second

// Measure starts a child that calls [Run], and counts. The child has ended when it returns. When
// the context ends, the child is killed. Measure does not wait for children of the child.
func Measure(ctx context.Context, cmd *exec.Cmd) ([]Count, error) {
	runtime.LockOSThread() // the kernel lets a single thread trace
	defer runtime.UnlockOSThread()
	if cmd.Env == nil {
		cmd.Env = env.All()
	}
	// A signal that is to preempt a goroutine would come in the middle of a path.
	cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1")
	var says bytes.Buffer
	cmd.Stderr = &says
	cmd.WaitDelay = outputDelay
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the process whose instructions are to be counted: %w", err)
	}
	// A kill is the only way to end the tracer's waiting. A child of the child may have its output,
	// and live on.
	stop := context.AfterFunc(ctx, func() {
		_ = cmd.Process.Kill()
		_ = out.Close()
	})
	var counts []Count
	t, b, err := seize(cmd.Process.Pid, bufio.NewReader(out))
	if err == nil {
		if _, err = in.Write([]byte{1}); err == nil {
			counts, err = countAll(t, b)
		}
	}
	if err != nil {
		_ = cmd.Process.Kill()
		if t != nil {
			t.Bury()
		}
	}
	ended := cmd.Wait()
	stop()
	if err == nil {
		err = ended
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("counting the instructions of process %d: %w; it says: %s",
			cmd.Process.Pid, err, strings.TrimSpace(says.String()))
	}
	return counts, nil
}

// seize begins to trace the thread that the child names.
func seize(pid int, out *bufio.Reader) (*unix.Tracee, begin, error) {
	var b begin
	line, err := out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &b)
	}
	if err != nil {
		return nil, b, fmt.Errorf("it did not say what to count: %w", err)
	}
	t, err := unix.Seize(pid, b.Thread)
	if err != nil {
		return nil, b, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return t, b, nil
}

// countAll goes through all rounds of all paths, in the order in which the child runs them.
func countAll(t *unix.Tracee, b begin) ([]Count, error) {
	var counts []Count
	for _, name := range b.Paths {
		c := Count{Name: name}
		for range b.Rounds {
			if err := t.ToMark(); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			n, err := t.StepToMark()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			c.Rounds = append(c.Rounds, n)
		}
		counts = append(counts, c)
	}
	if err := t.ToMark(); err != nil {
		return nil, err
	}
	if err := t.Release(); err != nil {
		return nil, err
	}
	return subtractBaseline(counts), nil
}

// subtractBaseline subtracts the cost of marks and calls, which is the count of the empty path,
// from all other counts.
func subtractBaseline(counts []Count) []Count {
	nothing := counts[0].Median()
	for _, c := range counts[1:] {
		for i := range c.Rounds {
			c.Rounds[i] -= nothing
		}
	}
	return counts[1:]
}

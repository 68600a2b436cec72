package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("allocate", child(allocate)) }

// granted is what processes may have of memory that ask for more.
const granted = 256 << 20

// allocate asks for memory by each call that takes some, more and more than there is, and has all
// that there is.
func allocate(ctx context.Context, p *vmmc.Process, _ []string) error {
	fmt.Println("in")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	resident := func() (n int) {
		b, _ := os.ReadFile("/proc/self/status")
		_, rest, _ := strings.Cut(string(b), "VmRSS:")
		_, _ = fmt.Sscan(rest, &n)
		return n << 10
	}
	refused := func(size int, err error) error {
		if !errors.Is(err, vmmc.ErrNoMem) {
			return fmt.Errorf("%d bytes: %w, want %w", size, err, vmmc.ErrNoMem)
		}
		if n := resident(); n > granted/2 {
			return fmt.Errorf("%d bytes: refused with %d bytes present", size, n)
		}
		return nil
	}
	for _, size := range []int{1 << 30, granted, 1 << 40, 1 << 46, 1<<63 - 8} {
		_, err := p.Alloc(size)
		if err := refused(size, err); err != nil {
			return fmt.Errorf("Alloc: %w", err)
		}
	}
	heap := make([]byte, 1<<30) // which was never touched
	for _, opts := range [][]vmmc.ExportOption{nil, {vmmc.WriteOnly()}, {vmmc.Unmapped()}} {
		_, err := p.Export(1, heap, opts...)
		if err := refused(len(heap), err); err != nil {
			return fmt.Errorf("Export: %w", err)
		}
	}
	// Small ones are refused at last, too, and none has to be killed for.
	var all []*vmmc.Memory
	for {
		m, err := p.Alloc(1 << 20)
		if errors.Is(err, vmmc.ErrNoMem) {
			break
		}
		if err != nil {
			return err
		}
		if all = append(all, m); len(all) > granted>>20 {
			return errors.New("the system has bounded nothing")
		}
	}
	fmt.Fprintf(os.Stderr, "%d of 1 MiB\n", len(all))
	if len(all) < granted>>22 {
		return fmt.Errorf("only %d of 1 MiB could be had", len(all))
	}
	for _, m := range all {
		if err := m.Close(); err != nil {
			return err
		}
	}
	// Closing an export takes no second memory: half of all that there is and more can be exported
	// and closed.
	m, err := p.Alloc(granted / 8 * 5)
	if err != nil {
		return err
	}
	e, err := p.Export(2, m.Bytes())
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, p.Node(), p.PID(), 2)
	if err != nil {
		return err
	}
	if err := im.Send(ctx, []byte{1, 2, 3, 4}, granted/2); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	if b := m.Bytes()[granted/2]; b != 1 {
		return fmt.Errorf("after the export the memory has %d, want 1", b)
	}
	fmt.Println("goes on")
	return m.Close()
}

// A process in a cgroup of less memory than it asks for gets an error, and no process is killed;
// also where the bound is that of a cgroup above.
func TestMoreMemoryThanThereIs(t *testing.T) {
	f := fenced(t, "memory")
	limit, swap, killed := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"
	if f.unified {
		limit, swap, killed = "memory.max", "memory.swap.max", "memory.events"
	}
	f.set(t, limit, strconv.Itoa(granted))
	if !f.unified {
		f.set(t, "memory.swappiness", "0")
	}
	if _, err := os.Stat(f.dir + "/" + swap); err == nil {
		f.set(t, swap, map[bool]string{true: "0", false: strconv.Itoa(granted)}[f.unified])
	}
	inner := fence{f.dir + "/vmmc-inner", f.unified}
	if err := os.Mkdir(inner.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]fence{"its own": f, "one above": inner} {
		t.Run(name, func(t *testing.T) {
			cl := up(t, 1, nil, nil)
			cmd := testutil.Command(t, "allocate")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			_, _, r := launch(t, cmd, cl.socket(0))
			says(t, r, "in")
			f.enter(t, cmd.Process.Pid)
			if _, err := in.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			if line, err := r.ReadString('\n'); line != "goes on\n" {
				t.Fatalf("it says %q (%v), and ends with %v; %s %s", line, err, cmd.Wait(), killed, f.get(t, killed))
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if s := f.get(t, killed); strings.Contains(s, "oom_kill ") && !strings.Contains(s, "oom_kill 0") {
				t.Errorf("it was killed for: %s", s)
			}
		})
	}
}

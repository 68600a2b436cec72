package integration

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("crowd", child(crowd)) }

// crowd opens many processes in this one; each imports the buffer and stores its
// word, and holds the import until this one's input ends.
func crowd(ctx context.Context, p *vmmc.Process, args []string) error {
	first, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	ims := make([]*vmmc.Import, n)
	for i := range ims {
		q, err := vmmc.Open(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = q.Close() }()
		node, pid, err := target(q, args[0], args[1])
		if err != nil {
			return err
		}
		if ims[i], err = q.Import(ctx, node, pid, 1); err != nil {
			return err
		}
	}
	// All links are there before the first is used.
	for i, im := range ims {
		at := first + i
		v := uint32(at + 1)
		if err := im.Send(ctx, []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}, 4*at); err != nil {
			return err
		}
	}
	for i, im := range ims {
		if err := im.SendNotify(ctx, []byte{1, 0, 0, 0}, 4*(first+i)); err != nil {
			return err
		}
	}
	fmt.Println("all in")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// share is what of this program's memory is its own share (PSS), in bytes.
func share(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Skipf("/proc/self/smaps_rollup: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "Pss:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("/proc/self/smaps_rollup has no Pss")
	return 0
}

// One buffer has 1,000 importers, which are as many links into one process: all of
// them reach it, and an idle link takes little of the exporter's memory.
func TestCrowd(t *testing.T) {
	const children, most = 4, 32 << 10
	each := scaled(1000) / children
	n := children * each
	c := up(t, 1, nil, nil)
	p := join(t, c, 0)
	m, err := p.Alloc(4 * n)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Export(1, m.Bytes(), vmmc.WithHandler(func(vmmc.Notification) {}))
	if err != nil {
		t.Fatal(err)
	}
	before := share(t)
	type member struct {
		cmd *exec.Cmd
		in  io.Closer
	}
	var crowds []member
	for i := range children {
		cmd := testutil.Command(t, "crowd", "n0", number(p.PID()), strconv.Itoa(i*each), strconv.Itoa(each))
		cmd.Env = append(cmd.Env, nodeproto.Env+"="+c.socket(0))
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		_, r := startAndRead(t, cmd)
		if s, err := r.ReadString('\n'); s != "all in\n" {
			t.Fatalf("crowd %d says %q: %v", i, s, err)
		}
		crowds = append(crowds, member{cmd, in})
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for seen := uint64(0); seen < uint64(n); { // each has stored 1 over its first word, and said so
		if seen, err = e.WaitNotified(ctx, seen); err != nil {
			t.Fatalf("after %d of %d notifications: %v", seen, n, err)
		}
	}
	for i := range n {
		w, err := e.Word(4 * i)
		if err != nil {
			t.Fatal(err)
		}
		if v := w.Load(); v != 1 {
			t.Fatalf("the word of importer %d is %d", i, v)
		}
	}
	if per := (share(t) - before) / n; !raceEnabled && n >= 1000 && per > most {
		t.Errorf("an idle link takes %d bytes of its exporter, at most %d", per, most)
	} else {
		t.Logf("%d links, %d bytes each", n, per)
	}
	for _, m := range crowds {
		_ = m.in.Close()
		finish(t, m.cmd)
	}
}

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("flood", child(flood)) }

const floodSize = 32 << 20

// flood fills a buffer, again and again, until its exporter has closed it. Args:
// node and pid of the exporter, and "notify" if its messages notify.
func flood(ctx context.Context, p *vmmc.Process, args []string) error {
	node, pid, err := target(p, args[0], args[1])
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, node, pid, 1)
	if err != nil {
		return err
	}
	send := im.Send
	if len(args) > 2 {
		send = im.SendNotify
	}
	for v := byte(1); ; v++ {
		if err := send(ctx, bytes.Repeat([]byte{v}, floodSize), 0); err != nil {
			if errors.Is(err, vmmc.ErrRevoked) {
				return nil
			}
			return err
		}
	}
}

// halt stops a process and returns when none of its threads runs any more.
func halt(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatal("no threads: ", err)
		}
		running := 0
		for _, f := range threads {
			b, err := os.ReadFile(f)
			if state := b[min(len(b), bytes.LastIndexByte(b, ')')+2):]; err == nil && !bytes.HasPrefix(state, []byte("T")) {
				running++
			}
		}
		if running == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the child does not stop")
		}
	}
}

func resume(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// The end of an export waits for no importer, not even for one that was stopped in
// the middle of a message; and when that one goes on, nothing of it arrives.
func TestExportOfAStoppedImporter(t *testing.T) {
	for _, c := range []struct {
		name     string
		node     int // of the importer
		unmapped bool
		redirect bool
	}{
		{name: "mapped"},
		{name: "stream", unmapped: true},
		{name: "between nodes", node: 1},
		{name: "redirected", redirect: true},
		{name: "redirected on the stream", redirect: true, unmapped: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := up(t, 2, nil, nil)
			p := join(t, cl, 0)
			m, err := p.Alloc(floodSize)
			if err != nil {
				t.Fatal(err)
			}
			to, err := p.Alloc(floodSize)
			if err != nil {
				t.Fatal(err)
			}
			var opts []vmmc.ExportOption
			if c.unmapped {
				opts = append(opts, vmmc.Unmapped())
			}
			if c.redirect {
				opts = append(opts, vmmc.Redirectable(to))
			}
			exp, err := p.Export(1, m.Bytes(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			_, cmd, _ := spawn(t, cl, c.node, "flood", "n0", number(p.PID()))
			pid := cmd.Process.Pid
			mem := m.Bytes()
			if c.redirect {
				mem = to.Bytes()
			}
			caught(t, pid, exp, mem, c.redirect)
			if c.redirect && !c.unmapped {
				ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
				if _, _, err := exp.EndRedir(ctx); !errors.Is(err, vmmc.ErrTimeout) {
					t.Errorf("the end of a redirection whose importer is stopped: %v, want %v", err, vmmc.ErrTimeout)
				}
				stop()
			}
			done := make(chan error, 1)
			go func() { done <- exp.Close() }()
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the end of an export waits for an importer that is stopped")
			}
			kept, its := bytes.Clone(m.Bytes()), bytes.Clone(to.Bytes())
			resume(t, pid)
			finish(t, cmd) // it has done all that it could
			if !bytes.Equal(m.Bytes(), kept) || !bytes.Equal(to.Bytes(), its) {
				t.Error("what an importer went on with has arrived after the export's end")
			}
		})
	}
}

// caught stops the importer in the middle of a message to mem.
func caught(t *testing.T, pid int, exp *vmmc.Export, mem []byte, redirect bool) {
	t.Helper()
	first, last := shm.Word(mem, 0), shm.Word(mem, len(mem)-4)
	for range 200 {
		begun, ended := first.Load(), last.Load()
		if redirect {
			if err := exp.PostRedir(mem, 0); err != nil {
				t.Fatal(err)
			}
		}
		// A redirection that was posted in the middle of a message gets its end alone.
		for end := time.Now().Add(20 * time.Second); first.Load() == begun && last.Load() == ended; {
			if time.Now().After(end) {
				t.Fatal("nothing arrives")
			}
		}
		halt(t, pid)
		if first.Load() != begun && last.Load() == ended {
			return
		}
		resume(t, pid)
		if redirect {
			if _, _, err := exp.EndRedir(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("it was never stopped in the middle of a message")
}

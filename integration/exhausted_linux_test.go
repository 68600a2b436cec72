package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("starve", child(starve)) }

// importedAt is a word by which the other process says that it has imported the buffer.
const importedAt = 4092

// starve uses up something that the system gives a process only so much of, while it uses
// the buffer of another process and is used by it. Args: what; node and pid of the other one.
func starve(ctx context.Context, p *vmmc.Process, args []string) error {
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	exp, err := p.Export(1, m.Bytes())
	if err != nil {
		return err
	}
	node, pid, err := target(p, args[1], args[2])
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, node, pid, 1)
	if err != nil {
		return err
	}
	goesOn := func() error {
		a, b := bytes.Repeat([]byte{7}, 1024), make([]byte, 1024)
		if err := im.Send(ctx, a, 0); err != nil {
			return err
		}
		if err := im.Get(ctx, b, 0); err != nil || !bytes.Equal(a, b) {
			return fmt.Errorf("what was sent was not there: %w", err)
		}
		return nil
	}
	if err := goesOn(); err != nil {
		return err
	}
	imported, err := exp.Word(importedAt)
	if err != nil {
		return err
	}
	if _, err := imported.Wait(ctx, 0); err != nil { // a link takes descriptors here, too
		return err
	}
	var all []*vmmc.Memory
	var more []*vmmc.Import
	take := func() error {
		m, err := p.Alloc(64 << 20)
		if err == nil {
			all = append(all, m)
		}
		return err
	}
	// Three allocations fit. What remains of the limit is less than one more and is for the Go
	// runtime, which ends the program when it cannot map memory for itself.
	what, limit := syscall.RLIMIT_AS, uint64(240<<20)
	switch args[0] {
	case "memory":
		var used uint64
		b, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(string(b), &used); err != nil {
			return err
		}
		limit += used * uint64(os.Getpagesize())
	case "descriptors":
		b, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		what, limit = syscall.RLIMIT_NOFILE, uint64(len(b)+12)
		take = func() error {
			m, err := p.Alloc(4096)
			if err == nil {
				all = append(all, m)
			}
			return err
		}
	case "imports": // and links
		b, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		what, limit = syscall.RLIMIT_NOFILE, uint64(len(b)+12)
		take = func() error {
			q, err := vmmc.Open(ctx)
			if err != nil {
				return err
			}
			go func() { <-ctx.Done(); _ = q.Close() }()
			i, err := q.Import(ctx, node, pid, 1)
			if err == nil {
				more = append(more, i)
			}
			return err
		}
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(what, &before); err != nil {
		return err
	}
	if err := syscall.Setrlimit(what, &syscall.Rlimit{Cur: limit, Max: before.Max}); err != nil {
		return err
	}
	for range 1000 {
		if err = take(); err != nil {
			break
		}
	}
	fmt.Printf("%d %d %v\n", len(all)+len(more), codeOf(err), err)
	// Another time is no other.
	for range 100 {
		if err := take(); err == nil {
			break // what was given back meanwhile
		}
	}
	if err := goesOn(); err != nil {
		return fmt.Errorf("what was there before: %w", err)
	}
	fmt.Println("goes on")
	if _, err := im.FetchAdd64(ctx, 2048, 1); err != nil {
		return err
	}
	for _, m := range all {
		if err := m.Close(); err != nil {
			return err
		}
	}
	if err := syscall.Setrlimit(what, &before); err != nil {
		return err
	}
	if err := take(); err != nil {
		return fmt.Errorf("when there is some again: %w", err)
	}
	fmt.Println("has some again")
	w, err := p.Export(2, make([]byte, 64))
	if err != nil {
		return err
	}
	word, err := w.Word(0)
	if err != nil {
		return err
	}
	_, err = word.Wait(ctx, 0) // until the other one has seen that this one goes on
	return err
}

func codeOf(err error) int {
	var e *vmmc.Error
	if errors.As(err, &e) {
		return int(e.Code)
	}
	return 0
}

// A process that has no more of what the system lets it have is told so, keeps what it has, and
// goes on; and so do those that it has to do with, meanwhile and afterwards.
func TestExhaustedProcess(t *testing.T) {
	for _, c := range []struct {
		what, says string
		code       vmmc.Code
	}{
		{"memory", "memory", vmmc.ErrNoMem},
		{"descriptors", "too many open files", vmmc.ErrNoMem},
		{"imports", "open files", 0}, // it may lose its node, whose answer was a descriptor too many
	} {
		for node, way := range []string{"one node", "two nodes"} {
			t.Run(c.what+" on "+way, func(t *testing.T) {
				cl := up(t, 2, nil, nil)
				p := join(t, cl, 0)
				m, err := p.Alloc(4096)
				if err != nil {
					t.Fatal(err)
				}
				exp, err := p.Export(1, m.Bytes())
				if err != nil {
					t.Fatal(err)
				}
				pid, cmd, r := spawn(t, cl, node, "starve", c.what, "n0", number(p.PID()))
				im := import1(t, p, node, pid, 1)
				if err := im.Send(t.Context(), []byte{1, 0, 0, 0}, importedAt); err != nil {
					t.Fatal(err)
				}
				line, err := r.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				t.Log(strings.TrimSpace(line))
				var n, code int
				_, err = fmt.Sscan(line, &n, &code)
				told := vmmc.Code(code) == c.code || c.code == 0 && (vmmc.Code(code) == vmmc.ErrNoMem || vmmc.Code(code) == vmmc.ErrNoDaemon)
				if err != nil || !told || !strings.Contains(line, c.says) {
					t.Errorf("it is told %q, want code %d and %q", line, c.code, c.says)
				}
				for _, want := range []string{"goes on", "has some again"} {
					if err := im.Send(t.Context(), []byte{1, 2, 3, 4}, 0); err != nil {
						t.Error(err)
					}
					says(t, r, want)
				}
				if n := exp.Bytes()[2048]; n != 1 {
					t.Errorf("it has counted %d times", n)
				}
				last := import1(t, p, node, pid, 2)
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				defer stop()
				if err := last.Send(ctx, []byte{1, 0, 0, 0}, 0); err != nil {
					t.Error(err)
				}
				finish(t, cmd)
			})
		}
	}
}

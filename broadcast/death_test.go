package broadcast_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// writerSteps are where a writer is killed and stopped, and how often it has been there.
var writerSteps = []struct {
	step string
	nth  int
}{
	{"accept.imported", 1},
	{"accept.exported", 1},
	{"accept.answered", 1},
	{"append.room", 150},
	{"append.begun", 150},
	{"append.written", 150},
	{"append.stored", 150},
	{"append.pushed", 1},
	{"append.rung", 150},
	{"close.stored", 1},
	{"close.waits", 1},
}

// reading joins and reads until a read fails, or the log has ended.
func reading(t *testing.T, p *vmmc.Process, s *track) chan error {
	ctx, done := within(t), make(chan error, 1)
	go func() {
		done <- func() error {
			r, err := broadcast.NewReader(ctx, p, name, broadcast.Oldest)
			if err != nil {
				return err
			}
			defer r.Close()
			for buf := []byte(nil); ; {
				b, pos, err := r.Next(ctx, buf)
				if err := s.add(b, pos, err); err != nil {
					return err
				}
				buf = b
			}
		}()
	}()
	return done
}

// A writer that is killed at any step ends what its readers wait for. What they have got is whole
// and in order, and another writer can take its place.
func TestWriterKilled(t *testing.T) {
	const n = 400
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		p := nodes[len(nodes)-1].Open(t)
		for i, s := range writerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				child := vmmctest.Child(t, nodes[0], "writer", name, itoa(n), s.step, itoa(s.nth), "/nonexistent/file")
				got := newTrack(0)
				done := reading(t, p, got)
				if line := child.Line(); line != s.step {
					t.Fatal(line)
				}
				child.Kill()
				err := <-done
				switch {
				case errors.Is(err, vmmc.ErrPeerGone), errors.Is(err, vmmc.ErrNoSuchProcess):
				case strings.HasPrefix(s.step, "close") && errors.Is(err, broadcast.ErrEnded) && got.n == n:
				default:
					t.Errorf("%v", err)
				}
				log := newWriter(t, nodes[0].Open(t), ringSize)
				r := newReader(t, p, broadcast.Oldest)
				appendAll(t, log, 0, 5)
				read(t, r, newTrack(0), 5)
			})
		}
	}
}

// A writer that is stopped at any step goes on where it was: its readers get everything up to the
// end, but for overruns.
func TestWriterStopped(t *testing.T) {
	const n = 400
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		p := nodes[len(nodes)-1].Open(t)
		for i, s := range writerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, nodes[0], "writer", name, itoa(n), s.step, itoa(s.nth), file)
				got := newTrack(0)
				got.begun = true
				done := reading(t, p, got)
				if line := child.Line(); line != s.step {
					t.Fatal(line)
				}
				child.Stop()
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if err := <-done; !errors.Is(err, broadcast.ErrEnded) {
					t.Errorf("%v", err)
				}
				if got.n != n {
					t.Errorf("the last entry is %d, want %d", got.n-1, n-1)
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// readerSteps are where a reader is killed and stopped, how often it has been there, and whether
// NewReader has returned by then.
var readerSteps = []struct {
	step   string
	nth    int
	joined bool
}{
	{"dial.found", 1, false},
	{"dial.exported", 1, false},
	{"dial.requested", 1, false},
	{"dial.answered", 1, false},
	{"dial.joined", 1, false},
	{"next.armed", 2, true},
	{"next.sleeps", 2, true},
	{"next.rung", 2, true},
	{"next.copied", 1, true},
	{"next.valid", 1, true},
}

// fill appends entries, and so lets a child read and wait by turns, until it has printed a line.
func fill(t *testing.T, log *broadcast.Writer, child *vmmctest.Proc, near *broadcast.Reader, s *track) (n int) {
	t.Helper()
	line := make(chan struct{})
	go func() {
		defer close(line)
		for child.Line() == "joined" {
		}
	}()
	for {
		select {
		case <-line:
			return n
		default:
			appendAll(t, log, n, 1)
			read(t, near, s, 1)
			n++
			time.Sleep(time.Duration(n%2) * time.Millisecond) // so that it waits, too
		}
	}
}

// A reader that is killed at any step is forgotten, and neither the writer nor other readers wait.
func TestReaderKilled(t *testing.T) {
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, step := range readerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+step.step, func(t *testing.T) {
				log := newWriter(t, nodes[0].Open(t), ringSize)
				near, s := newReader(t, nodes[0].Open(t), broadcast.Oldest), newTrack(0)
				child := vmmctest.Child(t, nodes[len(nodes)-1], "reader", name, step.step, itoa(step.nth), "/nonexistent/file")
				n := fill(t, log, child, near, s)
				child.Kill()
				appendAll(t, log, n, 20)
				read(t, near, s, 20)
				eventually(t, "the writer forgets the reader", func() bool { return log.Readers() == 1 })
				ctx := within(t)
				closed := make(chan error, 1)
				go func() { closed <- log.Close(ctx) }()
				if _, _, err := near.Next(ctx, nil); !errors.Is(err, broadcast.ErrEnded) {
					t.Errorf("%v", err)
				}
				if err := <-closed; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A reader that is stopped at any step holds up no append and no other reader, though the ring is
// overwritten many times. When it goes on it gets entries that are whole, or is told its loss.
func TestReaderStopped(t *testing.T) {
	const more = 2000
	for _, w := range deathWays {
		nodes := vmmctest.Nodes(t, w.nodes)
		for i, step := range readerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+step.step, func(t *testing.T) {
				log := newWriter(t, nodes[0].Open(t), ringSize)
				near, s := newReader(t, nodes[0].Open(t), broadcast.Oldest), newTrack(0)
				file := filepath.Join(t.TempDir(), "continue")
				child := vmmctest.Child(t, nodes[len(nodes)-1], "reader", name, step.step, itoa(step.nth), file)
				n := fill(t, log, child, near, s)
				child.Stop()
				for range more {
					appendAll(t, log, n, 1)
					read(t, near, s, 1)
					n++
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				if !step.joined && child.Line() != "joined" {
					t.Error("it does not join")
				}
				if err := near.Close(); err != nil {
					t.Error(err)
				}
				if err := log.Close(within(t)); err != nil {
					t.Error(err)
				}
				var got int
				var loss uint64
				line := child.Line()
				if k, err := fmt.Sscan(line, &got, &loss); k != 2 || err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if step.step == "next.copied" && loss == 0 {
					t.Error("nothing was lost of what was overwritten")
				}
				if got == 0 {
					t.Error("it has got nothing")
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Appends do not wait for a reader that is stopped, whatever it has requested, also when what the
// link takes is used up.
func TestAppendBesideAStoppedReader(t *testing.T) {
	for _, w := range deathWays {
		t.Run(w.name, func(t *testing.T) {
			nodes, log := w.start(t, 1<<20)
			child := vmmctest.Child(t, nodes[len(nodes)-1], "reader", name, "none", "1", "")
			eventually(t, "it is a reader", func() bool { return log.Readers() == 1 })
			child.Stop()
			p := nodes[len(nodes)-1].Open(t)
			near := newReader(t, p, broadcast.Oldest)
			long := make([]byte, log.MaxEntry())
			for range 200 {
				if _, err := log.Append(long); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(within(t))
			defer stop()
			b, _, err := near.Next(ctx, nil)
			if errors.As(err, new(*broadcast.Overrun)) {
				b, _, err = near.Next(ctx, nil)
			}
			if err != nil || len(b) != len(long) {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			child.Kill()
			eventually(t, "the writer forgets the reader", func() bool { return log.Readers() == 1 })
		})
	}
}

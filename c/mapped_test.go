//go:build linux && (amd64 || arm64)

package c_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

var compiledInside sync.Once

// compileInside links the program that looks inside of the library with the objects in build.
func compileInside(t *testing.T, build, path string, flags ...string) {
	t.Helper()
	objects, err := filepath.Glob(filepath.Join(build, "src", "*.o"))
	if err != nil || len(objects) == 0 {
		t.Fatalf("%d objects in %s: %v", len(objects), build, err)
	}
	args := slices.Concat([]string{
		"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-Iinclude", "-Isrc", "-o", path,
		"test/inside/inside.c",
	}, objects, flags, []string{"-ldl"})
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// inside is a command of that program, with the Go part beside it.
func inside(t *testing.T, on *vmmctest.Node, args ...string) *exec.Cmd {
	t.Helper()
	build := testutil.CLibrary(t)
	path := filepath.Join(build, "inside")
	compiledInside.Do(func() { compileInside(t, build, path) })
	c := exec.CommandContext(t.Context(), path, args...)
	c.Env = append(os.Environ(), on.Environ()...)
	return c
}

func runInside(t *testing.T, args ...string) {
	t.Helper()
	if out, err := inside(t, vmmctest.Nodes(t, 1)[0], args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// Sends and gets on the mapped path enter Go not once, whatever their length. Nor do asynchronous ones
// of at most 64 KiB, and the status of these.
func TestMappedStaysInC(t *testing.T) { runInside(t, "probe") }

// The end of data is read and cleared in C, but for the first time and after a change of the importer.
func TestDataEndStaysInC(t *testing.T) { runInside(t, "ends") }

// The messages of an importer of another process, which has the export mapped, have their ends in
// the claim page that both share. C reads it.
func TestDataEndOfAnotherProcess(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	c := talkWith(t, inside(t, node, "ends-of-another"))
	pid, err := strconv.Atoi(c.line(t))
	if err != nil {
		t.Fatal(err)
	}
	say := func(line string, answer string) {
		t.Helper()
		if _, err := io.WriteString(c.in, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if got := c.line(t); got != answer {
			t.Fatalf("after %q the program says %q, not %q", line, got, answer)
		}
	}
	const rounds, words, many = 3, 1024, 20_000
	for range rounds {
		p := node.Open(t)
		im, err := p.Import(t.Context(), node.ID(), vmmc.PID(pid), 1)
		if err != nil {
			t.Fatal(err)
		}
		if im.Path() != vmmc.PathMapped {
			t.Fatalf("the import's path is %v", im.Path())
		}
		send := func(last, n int) {
			t.Helper()
			if err := im.Send(t.Context(), make([]byte, 4*n), 4*(last-n+1)); err != nil {
				t.Fatal(err)
			}
		}
		say("changed", "done")
		for i, n := range []int{1, 2, 700, 1, 1, 16, 5} { // odd and even counts of messages
			send(800+i, n)
			say(fmt.Sprint("end ", 800+i), "done")
		}
		say("clear", "done")
		say("none", "done")
		send(7, 3)
		say("end 7", "done")
		send(5, 3)
		say("end 5", "done")

		say(fmt.Sprint("follow ", words-1), "follows")
		for i := range many { // the end stays one word for a while, so that all of them fit
			send(6+i*(words-6)/many, 1)
		}
		send(words-1, 1)
		if got := c.line(t); got != "done" {
			t.Fatal(got)
		}
		say(fmt.Sprint("end ", words-1), "done")
		if err := errors.Join(im.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
		say(fmt.Sprint("end ", words-1), "done") // it outlives its importer
	}
	c.end(t)
}

// Threads read and clear the end of data while importers and exports come and go. Go collects often,
// and so unmaps what nothing keeps.
func TestDataEndClosing(t *testing.T) {
	for _, how := range [][]string{{"ends-closing", "300"}, {"unfenced", "ends-closing", "100"}} {
		c := inside(t, vmmctest.Nodes(t, 1)[0], how...)
		c.Env = append(c.Env, "GOGC=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", how, err, out)
		}
	}
}

// The same where the kernel has no membarrier for the process, so that C stores its epochs with
// barriers of its own.
func TestMappedWithoutMembarrier(t *testing.T) {
	runInside(t, "unfenced", "probe")
	runInside(t, "unfenced", "closing", "200")
}

// The status of a finished request of Go on mapped memory enters Go not once.
func TestStatusStaysInC(t *testing.T) { runInside(t, "status") }

// Waits for an event that are left by siglongjmp lose none.
func TestEventsLeft(t *testing.T) { runInside(t, "events-left") }

// Block and Unblock enter Go not once, and a level holds handlers back.
func TestLevelsStayInC(t *testing.T) { runInside(t, "levels") }

// A Block waits for the running handler, and one that is left meanwhile leaves no level behind.
func TestBlockWaits(t *testing.T) { runInside(t, "levels-wait") }

// No handler runs while a thread has a level, and none is forgotten, whatever comes between.
func TestBlockStorm(t *testing.T) { runInside(t, "levels-storm", "20000") }

// More threads than there are epochs.
func TestEpochsRunOut(t *testing.T) { runInside(t, "crowd") }

func TestLongImports(t *testing.T) { runInside(t, "lengths") }

func TestPollModeWithoutDescriptor(t *testing.T) { runInside(t, "descriptor") }

// Threads send and get while the import is closed and made again. Go collects often, and so unmaps
// what nothing keeps.
func TestMappedClosing(t *testing.T) {
	c := inside(t, vmmctest.Nodes(t, 1)[0], "closing", "1000")
	c.Env = append(c.Env, "GOGC=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Signal handlers that send, that leave a send by siglongjmp, and that end its thread.
func TestMappedLeaving(t *testing.T) { runInside(t, "leaving") }

// A handler forks in the middle of a send.
func TestMappedForking(t *testing.T) { runInside(t, "forking") }

// A queued send costs the wake-ups of two threads, which is as much as 64 KiB take between nodes.
func TestLongSendsAreNotQueued(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	p := nodes[1].Open(t)
	const message, slots, messages = 64 << 10, 16, 400
	m := make([]byte, slots*message)
	if _, err := p.Export(1, m); err != nil {
		t.Fatal(err)
	}
	c := inside(t, nodes[0], "long", nodes[1].Name(), strconv.Itoa(int(p.PID())))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := p.Close(); err != nil { // The memory is this program's own again.
		t.Fatal(err)
	}
	for i := range slots {
		for off := i * message; off < (i+1)*message; off += 4 {
			if got, want := binary.NativeEndian.Uint32(m[off:]), uint32(messages-slots+i); got != want {
				t.Fatalf("the word at %d is %d, not %d", off, got, want)
			}
		}
	}
}

// The exporter is killed while C sends.
func TestMappedPeerGone(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	exporter := command(t, node, "receive", "alloc", "1000000")
	out, err := exporter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := exporter.Start(); err != nil {
		t.Fatal(err)
	}
	pid := firstLine(t, bufio.NewReader(out))
	c := inside(t, node, "gone", node.Name(), pid)
	var errs bytes.Buffer
	c.Stderr = &errs
	says, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	firstLine(t, bufio.NewReader(says))
	_ = exporter.Process.Kill()
	_ = exporter.Wait()
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errs.Bytes())
	}
}

func firstLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// Messages of the stream, and asynchronous ones, are in place before a later mapped message.
func TestMappedOrder(t *testing.T) {
	const rounds, mapped, stream = 400, 1 << 20, 64 << 10
	node := vmmctest.Nodes(t, 1)[0]
	p := node.Open(t)
	var exports [2][]byte
	var flag vmmc.Word
	for i, size := range []int{mapped, stream} {
		m, err := p.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		var opts []vmmc.ExportOption
		if i == 1 {
			opts = append(opts, vmmc.Unmapped())
		}
		e, err := p.Export(uint32(i+1), m.Bytes(), opts...)
		if err != nil {
			t.Fatal(err)
		}
		exports[i] = m.Bytes()
		if i == 0 {
			if flag, err = e.Word(mapped - 4); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := inside(t, node, "order", node.Name(), strconv.Itoa(int(p.PID())), strconv.Itoa(rounds))
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(firstLine(t, bufio.NewReader(out)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := answer(ctx, p, node.ID(), vmmc.PID(pid), flag, exports, rounds); err != nil {
		t.Errorf("%v\n%s", err, errs.Bytes())
		_ = c.Process.Kill()
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errs.Bytes())
	}
}

// answer checks for each flag that what was sent before it is there.
func answer(
	ctx context.Context, p *vmmc.Process, node vmmc.NodeID, pid vmmc.PID, flag vmmc.Word, exports [2][]byte, rounds int,
) error {
	im, err := p.Import(ctx, node, pid, 3)
	if err != nil {
		return err
	}
	for i := uint32(1); int(i) <= rounds; i++ {
		if _, err := flag.Wait(ctx, i-1); err != nil {
			return fmt.Errorf("waiting for flag %d: %w", i, err)
		}
		b := exports[1]
		if i%2 == 0 {
			b = exports[0]
		}
		for at := 0; at < len(b); at += 4 {
			if v := binary.NativeEndian.Uint32(b[at:]); v != i {
				return fmt.Errorf("flag %d is there, and at %d of the message before it is %d", i, at, v)
			}
		}
		if err := im.Send(ctx, binary.NativeEndian.AppendUint32(nil, i), 0); err != nil {
			return err
		}
	}
	return nil
}

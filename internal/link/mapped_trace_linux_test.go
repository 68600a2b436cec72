//go:build amd64 && !race

package link

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

var updateTraces = flag.Bool("update-traces", false,
	"TestMappedTraces writes what it sees into the files of traces instead of comparing")

// area is memory of the traced process.
type area struct {
	Addr uint64
	Size int
}

// ready is what a traced process says before a call, and done after it.
type (
	ready struct {
		Areas  map[string]area
		Socket int
	}
	done struct {
		Result string
		After  []string // Lines.
		Frames []string // What the peer has received.
	}
)

// TestMappedTraces takes the thread of a sender, in a process of its own, through each traced call
// one instruction at a time. It compares the shared pages after each of them, and plays the peer
// process. So the order of the sender's stores is exact, also where a reader would seldom see
// another one.
func TestMappedTraces(t *testing.T) {
	files := readTraces(t)
	for name, traces := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			seen := traced(t, name, traces)
			for i, tr := range traces {
				if !*updateTraces && !slices.Equal(seen[i], tr.expected) {
					t.Errorf("%s: trace %s: the sender did\n\t%s\nexpected is\n\t%s", tr.description, tr.name,
						strings.Join(seen[i], "\n\t"), strings.Join(tr.expected, "\n\t"))
				}
				tr.expected = seen[i]
			}
			if *updateTraces {
				if err := writeTraces(name, traces); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// traced runs the traces of a file in a child, and returns what its sender does in each.
func traced(t *testing.T, file string, traces []*trace) [][]string {
	t.Helper()
	runtime.LockOSThread() // the kernel lets a single thread trace
	defer runtime.UnlockOSThread()
	cmd := testutil.Command(t, "traced sender", file)
	cmd.Env = append(cmd.Env, "GODEBUG=asyncpreemptoff=1")
	return tracedCommand(t, cmd, traces)
}

// tracedCommand starts a sender, which makes the calls of the traces, and returns what it does. The
// caller is locked to its thread.
func tracedCommand(t *testing.T, cmd *exec.Cmd, traces []*trace) [][]string {
	t.Helper()
	var says bytes.Buffer
	cmd.Stderr = &says
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A kill is the only way to end a wait for the thread.
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	seen, err := follow(cmd, in, bufio.NewReader(out), traces)
	if errors.Is(err, errNoTracing) {
		t.Skip(err)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("%v; the sender says: %s", err, says.String())
	}
	return seen
}

var errNoTracing = errors.New("this system lets no process trace its child (ptrace)")

// follow traces a child that has started.
func follow(cmd *exec.Cmd, in io.Writer, out *bufio.Reader, traces []*trace) (seen [][]string, err error) {
	hear := func(v any) error {
		line, err := out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, v)
		}
		return err
	}
	var tid int
	if err := hear(&tid); err != nil {
		return nil, fmt.Errorf("hearing which thread to trace: %w", err)
	}
	th, err := unix.Seize(cmd.Process.Pid, tid)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoTracing, err)
	}
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill()
			th.Bury()
		}
	}()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	if _, err := in.Write([]byte{1}); err != nil {
		return nil, err
	}
	// After a call the child says what came of it on its way to the next mark.
	if err := th.ToMark(); err != nil {
		return nil, err
	}
	for _, tr := range traces {
		w := watcher{trace: tr, mem: mem}
		var d done
		var lines []string
		err := hear(&w.ready)
		if err == nil {
			err = w.begin()
		}
		if err == nil {
			err = th.EachStep(w.step)
		}
		if err == nil {
			err = th.ToMark()
		}
		if err == nil {
			err = hear(&d)
		}
		if err == nil {
			lines, err = w.lines(d)
		}
		if err != nil {
			return nil, fmt.Errorf("trace %s: %w", tr.name, err)
		}
		seen = append(seen, lines)
	}
	return seen, th.Release()
}

// event is one thing that a sender does. Plain stores to one area that follow one another are one
// event.
type event struct {
	kind string // plain, exchange, frame, rouse
	area string
	off  int    // of an exchange or a rouse
	b    []byte // of an exchange; of plain stores the whole area
	set  []bool // the bytes of the area that plain stores changed
}

// watcher watches one call of a sender, and plays its peer process.
type watcher struct {
	*trace
	ready
	mem    *os.File
	was    map[string][]byte // The watched areas as they were.
	code   []byte            // The instruction that runs next.
	events []event
}

// watched are the areas that a sender writes.
var watched = []string{"export", "importer", "buffer"}

func (w *watcher) begin() error {
	w.was = map[string][]byte{}
	for _, name := range watched {
		b, err := w.read(name)
		if err != nil {
			return err
		}
		w.was[name] = b
	}
	return nil
}

func (w *watcher) read(name string) ([]byte, error) {
	b := make([]byte, w.Areas[name].Size)
	_, err := w.mem.ReadAt(b, int64(w.Areas[name].Addr))
	return b, err
}

// step looks at what the instruction before did, and at which one comes next.
func (w *watcher) step(s unix.Step) error {
	for _, name := range watched {
		now, err := w.read(name)
		if err != nil {
			return err
		}
		if bytes.Equal(now, w.was[name]) {
			continue
		}
		w.stored(name, now)
		old := w.was[name]
		w.was[name] = now
		if err := w.react(name, old, now); err != nil {
			return err
		}
	}
	w.code = make([]byte, 15)
	n, err := w.mem.ReadAt(w.code, int64(s.PC))
	if w.code = w.code[:n]; n == 0 {
		return err
	}
	if bytes.HasPrefix(w.code, []byte{0x0f, 0x05}) {
		w.called(s)
	}
	return nil
}

// stored records the changes of an area by one instruction.
func (w *watcher) stored(name string, now []byte) {
	was := w.was[name]
	if exchanges(w.code) {
		e := event{kind: "exchange", area: name, off: -1}
		for i := range now {
			if now[i] != was[i] {
				if e.off < 0 {
					e.off = i &^ 3
				}
				e.b = now[e.off : i&^3+4]
			}
		}
		w.events = append(w.events, e)
		return
	}
	last := len(w.events) - 1
	if last < 0 || w.events[last].kind != "plain" || w.events[last].area != name {
		w.events = append(w.events, event{kind: "plain", area: name, b: make([]byte, len(now)), set: make([]bool, len(now))})
		last++
	}
	for i, e := 0, &w.events[last]; i < len(now); i++ {
		if now[i] != was[i] {
			e.set[i], e.b[i] = true, now[i]
		}
	}
}

// exchanges reports whether an instruction that has changed memory is an atomic exchange, or
// another one that is a full barrier.
func exchanges(code []byte) bool {
	for _, b := range code {
		switch {
		case b == 0xf0:
			return true
		case b == 0x66, b == 0xf2, b == 0xf3, b&0xf0 == 0x40: // other prefixes
		default:
			return b == 0x86 || b == 0x87
		}
	}
	return false
}

// react makes the peer's stores that a change of an area calls for.
func (w *watcher) react(name string, was, now []byte) error {
	for i := range w.peer {
		r := &w.peer[i]
		if r.area != name || bytes.Equal(was[r.off:r.off+r.n], now[r.off:r.off+r.n]) {
			continue
		}
		r.area = "" // once
		a, ok := w.Areas[r.put.area]
		if !ok {
			return fmt.Errorf("no area %q", r.put.area)
		}
		if _, err := w.mem.WriteAt(r.put.b, int64(a.Addr)+int64(r.put.off)); err != nil {
			return fmt.Errorf("storing for the peer: %w", err)
		}
		if b := w.was[r.put.area]; b != nil {
			copy(b[r.put.off:], r.put.b)
		}
	}
	return nil
}

// called records a system call that is about to be made.
func (w *watcher) called(s unix.Step) {
	const write, sendto, sendmsg, futex = 1, 44, 46, 202
	switch {
	case s.Call == futex:
		for name, a := range w.Areas {
			if s.Args[0] >= a.Addr && s.Args[0] < a.Addr+uint64(a.Size) {
				w.events = append(w.events, event{kind: "rouse", area: name, off: int(s.Args[0] - a.Addr)})
			}
		}
	case (s.Call == write || s.Call == sendto || s.Call == sendmsg) && s.Args[0] == uint64(w.Socket):
		w.events = append(w.events, event{kind: "frame"})
	}
}

// lines are what the sender did, in the words of a file of traces.
func (w *watcher) lines(d done) (lines []string, err error) {
	frames := d.Frames
	for _, e := range w.events {
		switch e.kind {
		case "plain":
			for i := 0; i < len(e.set); i++ {
				from := i
				for ; i < len(e.set) && e.set[i]; i++ {
					continue
				}
				if i > from {
					lines = append(lines, fmt.Sprintf("plain %s %d %d %s", e.area, from, i-from, w.content(e.area, from, e.b[from:i])))
				}
			}
		case "exchange":
			lines = append(lines, fmt.Sprintf("exchange %s %d %d %s", e.area, e.off, len(e.b), w.content(e.area, e.off, e.b)))
		case "rouse":
			lines = append(lines, fmt.Sprintf("rouse %s %d", e.area, e.off))
		case "frame":
			if len(frames) == 0 {
				return nil, errors.New("a call wrote to the socket, and no frame has arrived")
			}
			lines = append(lines, frames[0])
			frames = frames[1:]
		}
	}
	if len(frames) > 0 {
		return nil, fmt.Errorf("frames %v have arrived that no call of the thread wrote", frames)
	}
	return append(append(lines, "result "+d.Result), d.After...), nil
}

// content describes bytes that were stored: those of the source, or any.
func (w *watcher) content(name string, off int, b []byte) string {
	base := w.off
	if name == "buffer" {
		base = 0
	}
	if from := off - base; from >= 0 && from+len(b) <= w.n && name != "importer" {
		if name == "buffer" { // it gets what the export has
			from += w.off
		}
		if bytes.Equal(b, pattern(from + len(b))[from:]) {
			return fmt.Sprintf("from %d", from)
		}
	}
	return fmt.Sprintf("%x", b)
}

//go:build linux && (amd64 || arm64)

// Package c_test runs C programs that use the C library.
package c_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func TestMain(m *testing.M) { vmmctest.Main(m) }

var compiled sync.Once

// program is the test program, linked with the shared library in c/build.
func program(t *testing.T) string {
	t.Helper()
	build := testutil.CLibrary(t)
	path := filepath.Join(build, "prog")
	compiled.Do(func() { compile(t, path, "-L"+build, "-lvmmc", "-Wl,-rpath,"+build) })
	return path
}

func compile(t *testing.T, path string, flags ...string) {
	t.Helper()
	sources, err := filepath.Glob("test/*.c")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-Iinclude", "-o", path},
		sources...)
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// command is the test program on a node; nil for a place without one.
func command(t *testing.T, on *vmmctest.Node, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), program(t), args...)
	c.Env = append(os.Environ(), "VMMC_SOCKET=/nowhere")
	if on != nil {
		c.Env = append(c.Env, on.Environ()...)
	}
	return c
}

// run runs the test program to its end, and returns what it printed.
func run(t *testing.T, on *vmmctest.Node, args ...string) string {
	t.Helper()
	c := command(t, on, args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s\n%s", args, err, out, errs.Bytes())
	}
	return string(out)
}

// talker is a running program.
type talker struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	errs bytes.Buffer
}

func talk(t *testing.T, on *vmmctest.Node, args ...string) *talker {
	t.Helper()
	return talkWith(t, command(t, on, args...))
}

func talkWith(t *testing.T, c *exec.Cmd) *talker {
	t.Helper()
	p := &talker{cmd: c}
	p.cmd.Stderr = &p.errs
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *talker) line(t *testing.T) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("the program has ended: %v\n%s", p.cmd.Wait(), p.errs.Bytes())
	}
	return p.out.Text()
}

func (p *talker) end(t *testing.T) {
	t.Helper()
	_, _ = io.WriteString(p.in, "end\n")
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("the program: %v\n%s", err, p.errs.Bytes())
	}
}

func TestNames(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	p := nodes[0].Open(t)
	host, all := p.HostName(), nodes[0].Name()+" "+nodes[1].Name()
	want := fmt.Sprintf("version 2 0 word 4 page %d\nhost %s\nnode %s\nall %s\nsession %s\npid ",
		vmmc.PageSize(), host, nodes[0].Name(), all, all)
	if got := run(t, nodes[0], "names"); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q and a pid", got, want)
	}
}

func TestStaticArchive(t *testing.T) {
	build := testutil.CLibrary(t)
	nodes := vmmctest.Nodes(t, 1)
	path := filepath.Join(t.TempDir(), "static")
	compile(t, path, build+"/libvmmc.a", "-ldl")
	c := exec.CommandContext(t.Context(), path, "names")
	c.Env = append(os.Environ(), append(nodes[0].Environ(), "VMMC_GO_LIBRARY="+build+"/vmmc/libvmmc-go.so")...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	c = exec.CommandContext(t.Context(), path, "refused", strconv.Itoa(int(code.BadConfig)))
	c.Env = append(os.Environ(), nodes[0].Environ()...)
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "VMMC_GO_LIBRARY") {
		t.Errorf("without the Go part: %v\n%s", err, out)
	}
}

func TestTexts(t *testing.T) {
	b, err := os.ReadFile("src/texts.inc")
	if err != nil {
		t.Fatal(err)
	}
	for c := code.Code(0); c >= -128; c-- {
		row := fmt.Sprintf("{%d, %q},", int32(c), c.Error())
		if known := !strings.HasPrefix(c.Error(), "unknown error code"); known != strings.Contains(string(b), row) {
			t.Errorf("texts.inc and internal/code differ about %s", row)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	got := run(t, nil, "refused", strconv.Itoa(int(code.NoDaemon)))
	if !strings.Contains(got, "/nowhere") {
		t.Errorf("the error does not name the socket: %s", got)
	}
}

// A limit on address space that Go's runtime would abort at.
func TestLimitOnAddressSpace(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	for _, kib := range []string{"200000", "800000", "1600000"} {
		c := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -v "+kib+"; exec \"$@\"", "sh",
			program(t), "refused", strconv.Itoa(int(code.NoMem)))
		c.Env = append(os.Environ(), nodes[0].Environ()...)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "ulimit -v") {
			t.Errorf("ulimit -v %s: %v\n%s", kib, err, out)
		}
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -v 8000000; exec \"$@\"", "sh", program(t), "notify")
	c.Env = append(os.Environ(), nodes[0].Environ()...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("ulimit -v 8000000: %v\n%s", err, out)
	}
}

// Addresses are used again only when no others are left, which the limit brings about.
func TestAddressesRunOut(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	c := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -v 6000000; exec \"$@\"", "sh", program(t), "space", "500")
	c.Env = append(os.Environ(), nodes[0].Environ()...)
	out, err := c.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "again" {
		t.Errorf("with a limit: %v\n%s", err, out)
	}
	if got := strings.TrimSpace(run(t, nodes[0], "space", "100")); got != "other" {
		t.Errorf("without one an address was given twice: %s", got)
	}
}

func TestSpawn(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	run(t, nodes[0], "spawn", nodes[0].Name())
	if os.Getuid() != 0 { // no node starts programs as root for another one
		run(t, nodes[0], "spawn", nodes[1].Name())
	}
}

func TestTransfers(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for _, kind := range []string{"alloc", "malloc", "static", "stack"} {
		for i, where := range []string{"one node", "two nodes"} {
			t.Run(kind+"/"+where, func(t *testing.T) {
				r := talk(t, nodes[0], "receive", kind, "40")
				pid := r.line(t)
				run(t, nodes[i], "send", nodes[0].Name(), pid, "40")
				r.end(t)
			})
		}
	}
}

// goReceiver does what the C program does as "receive".
func goReceiver(t *testing.T, p *vmmc.Process, rounds int) (done chan error) {
	t.Helper()
	var bufs [2][]byte
	for i := range bufs {
		m, err := p.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		bufs[i] = m.Bytes()
	}
	e, err := p.Export(1, bufs[0])
	if err != nil {
		t.Fatal(err)
	}
	answers, err := p.Export(2, bufs[1])
	if err != nil {
		t.Fatal(err)
	}
	last, _ := e.Word(4092)
	answer, _ := answers.Word(0)
	done = make(chan error, 1)
	go func() {
		for i := uint32(1); i <= uint32(rounds); i++ {
			for last.Load() != i {
				if _, err := last.Wait(t.Context(), last.Load()); err != nil {
					done <- err
					return
				}
			}
			for off := 0; off < 4096; off += 4 {
				w, _ := e.Word(off)
				if v := w.Load(); v != i {
					done <- fmt.Errorf("round %d: %d at %d", i, v, off)
					return
				}
			}
			answer.Store(i)
		}
		done <- nil
	}()
	return done
}

func TestGoReceivesFromC(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for i, where := range []string{"one node", "two nodes"} {
		t.Run(where, func(t *testing.T) {
			p := nodes[0].Open(t)
			done := goReceiver(t, p, 40)
			run(t, nodes[i], "send", nodes[0].Name(), strconv.Itoa(int(p.PID())), "40")
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCReceivesFromGo(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for i, where := range []string{"one node", "two nodes"} {
		for _, kind := range []string{"alloc", "malloc"} {
			t.Run(kind+"/"+where, func(t *testing.T) {
				const rounds = 40
				r := talk(t, nodes[0], "receive", kind, strconv.Itoa(rounds))
				pid, err := strconv.Atoi(r.line(t))
				if err != nil {
					t.Fatal(err)
				}
				p := nodes[i].Open(t)
				im, err := p.Import(t.Context(), nodes[0].ID(), vmmc.PID(pid), 1)
				if err != nil {
					t.Fatal(err)
				}
				if mapped := im.Path() == vmmc.PathMapped; mapped != (i == 0 && kind == "alloc") {
					t.Errorf("the import's path is %v", im.Path())
				}
				answers, err := p.Import(t.Context(), nodes[0].ID(), vmmc.PID(pid), 2)
				if err != nil {
					t.Fatal(err)
				}
				src, got := make([]byte, 4096), make([]byte, 4)
				for i := byte(1); i <= rounds; i++ {
					for j := 0; j < len(src); j += 4 {
						src[j] = i
					}
					if err := im.Send(t.Context(), src, 0); err != nil {
						t.Fatal(err)
					}
					for got[0] != i {
						if err := answers.Get(t.Context(), got, 0); err != nil {
							t.Fatal(err)
						}
					}
				}
				r.end(t)
			})
		}
	}
}

func TestRedirect(t *testing.T) {
	run(t, vmmctest.Nodes(t, 1)[0], "redirect")
}

// LD_BIND_NOW has the loader bind all names of the program and of both parts before their first use.
func TestBindNow(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	lazy := filepath.Join(t.TempDir(), "lazy")
	build := testutil.CLibrary(t)
	compile(t, lazy, "-L"+build, "-lvmmc", "-Wl,-rpath,"+build, "-Wl,-z,lazy")
	for _, args := range [][]string{{"names"}, {"redirect"}, {"notify"}, {"bad"}} {
		c := exec.CommandContext(t.Context(), lazy, args...)
		c.Env = append(append(os.Environ(), node.Environ()...), "LD_BIND_NOW=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

func TestNotify(t *testing.T) {
	run(t, vmmctest.Nodes(t, 1)[0], "notify")
}

// A program publishes a buffer, and another one imports it by its name.
func TestPublishedNames(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for i, where := range []string{"one node", "two nodes"} {
		t.Run(where, func(t *testing.T) {
			name := "answers" + strconv.Itoa(i)
			p := talk(t, nodes[0], "publish", name)
			if l := p.line(t); l != "published" {
				t.Fatal(l)
			}
			run(t, nodes[i], "import", nodes[0].Name()+"/"+name)
			if l := p.line(t); l != "unpublished" {
				t.Fatal(l)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := nodes[0].Open(t).ImportName(ctx, name); !errors.Is(err, vmmc.ErrTimeout) {
				t.Errorf("the name is still there: %v", err)
			}
			p.end(t)
		})
	}
}

// The programs of a group know each other by their ranks, and wait for each other.
func TestGroup(t *testing.T) {
	const size = 3
	nodes := vmmctest.Nodes(t, 2)
	group := fmt.Sprintf("VMMC_GROUP=1:00112233445566778899aabbccddeeff:%s*2,%s*1", nodes[0].Name(), nodes[1].Name())
	var programs [size]*exec.Cmd
	var outs [size]bytes.Buffer
	for rank := range programs {
		c := command(t, nodes[rank/2], "member")
		c.Env = append(c.Env, group, fmt.Sprint("VMMC_RANK=", rank), fmt.Sprint("VMMC_SIZE=", size))
		c.Stdout, c.Stderr = &outs[rank], &outs[rank]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		programs[rank] = c
	}
	for rank, c := range programs {
		if err := c.Wait(); err != nil || outs[rank].String() != fmt.Sprintf("%d of %d\n", rank, size) {
			t.Errorf("rank %d: %v\n%s", rank, err, outs[rank].Bytes())
		}
	}
}

// The program runs its handlers itself.
func TestPollMode(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	run(t, node, "polling")
	run(t, node, "polling_late")
}

// Without the mutex before a thread's first call of Go this takes some twenty seconds.
func TestThousandThreads(t *testing.T) {
	run(t, vmmctest.Nodes(t, 1)[0], "threads", "1000")
}

func TestFork(t *testing.T) { run(t, vmmctest.Nodes(t, 1)[0], "forks") }

func TestExec(t *testing.T) { run(t, vmmctest.Nodes(t, 1)[0], "execs") }

func TestLeaveCalls(t *testing.T) { run(t, vmmctest.Nodes(t, 1)[0], "jumps") }

func TestProgramsOwnFaultHandler(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		run(t, vmmctest.Nodes(t, 1)[0], "faults", when)
	}
}

// The interface of the shared library is the one in abi.txt.
func TestABI(t *testing.T) {
	testutil.CLibrary(t)
	c := exec.CommandContext(t.Context(), "make", "-s", "check", "CC=gcc")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("make check: %v\n%s", err, out)
	}
}

func TestTouchDestSpace(t *testing.T) {
	c := command(t, vmmctest.Nodes(t, 1)[0], "touch")
	out, err := c.CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGSEGV {
		t.Errorf("the program ended with %v, and not by SIGSEGV", err)
	}
	if !regexp.MustCompile(`^vmmc: access to 0x[0-9a-f]+4 in DestSpace, .*vmmc_SendData`).Match(out) {
		t.Errorf("it said %q", out)
	}
}

func TestInterruptEndsAWait(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p := talk(t, node, "waiting")
	pid, err := strconv.Atoi(p.line(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err = p.cmd.Wait()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("the program ended with %v, and not by SIGINT", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := node.Open(t).Import(ctx, node.ID(), vmmc.PID(pid), 1); !errors.Is(err, vmmc.ErrNoSuchProcess) {
		t.Errorf("an import from it: %v", err)
	}
}

// The program sets the variable itself, before its first call.
func TestImportTimeout(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	for v, want := range map[string]code.Code{"100ms": code.Timeout, "soon": code.BadConfig, "-1s": code.BadConfig} {
		out := strings.Fields(run(t, node, "waiting", v))
		if len(out) != 2 || out[1] != strconv.Itoa(int(want)) {
			t.Errorf("with %s an import printed %q, want %d in the end", v, out, want)
		}
	}
}

// Atomic operations, the fence and waits for words, by one process on its own memory.
func TestWords(t *testing.T) { run(t, vmmctest.Nodes(t, 1)[0], "words") }

// Programs in C on two nodes change the words of a process in Go, which adds to one meanwhile.
func TestAtomics(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	p := nodes[0].Open(t)
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.Export(1, m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	word, _ := e.Word(0)
	for _, n := range nodes {
		c := command(t, n, "change", nodes[0].Name(), strconv.Itoa(int(p.PID())))
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			word.Add(1)
		}
		if err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := word.Load(), uint32(len(nodes)*4000); got != want {
		t.Errorf("the sum is %d, want %d", got, want)
	}
	for off, want := range map[int]uint32{4: 1, 16: 1, 24: 10, 28: 0} {
		if w, _ := e.Word(off); w.Load() != want {
			t.Errorf("the word at %d is %d, want %d", off, w.Load(), want)
		}
	}
}

// Plain stores of a program in C appear in the exports of one in Go, on its node and on another one.
func TestAutomaticUpdate(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for _, n := range nodes {
		p := nodes[0].Open(t)
		var notified [2]atomic.Int32
		for i := range notified {
			m, err := p.Alloc(4096 * 4)
			if err != nil {
				t.Fatal(err)
			}
			count := func(vmmc.Notification) { notified[i].Add(1) }
			if _, err := p.Export(uint32(i+1), m.Bytes(), vmmc.WithHandler(count)); err != nil {
				t.Fatal(err)
			}
		}
		run(t, n, "update", nodes[0].Name(), strconv.Itoa(int(p.PID())))
		if a, b := notified[0].Load(), notified[1].Load(); a != 0 || b == 0 {
			t.Errorf("updates without and with notification have run %d and %d handlers", a, b)
		}
	}
}

// A program in C hears that an exporter has closed its buffer, and that it has ended.
func TestEvents(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for _, n := range nodes {
		p := nodes[0].Open(t)
		m, err := p.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		e, err := p.Export(1, m.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		c := command(t, n, "events", nodes[0].Name(), strconv.Itoa(int(p.PID())))
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		says := bufio.NewReader(out)
		for _, step := range []struct {
			line string
			end  func() error
		}{{"ready", e.Close}, {"revoked", p.Close}} {
			line, err := says.ReadString('\n')
			if err != nil || strings.TrimSpace(line) != step.line {
				t.Fatalf("it says %q (%v), want %q; %s", line, err, step.line, errs.Bytes())
			}
			if err := step.end(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, errs.Bytes())
		}
	}
}

// An event is told while the handler of a notification that came before it may not run.
func TestEventsPassHandlers(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for _, how := range []string{"blocked", "polling"} {
		for _, n := range nodes {
			c := command(t, nodes[0], "events_held", how)
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
			p := n.Open(t)
			im, err := p.Import(t.Context(), nodes[0].ID(), vmmc.PID(pid), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := im.SendNotify(t.Context(), []byte{7, 0, 0, 0}, 0); err != nil {
				t.Fatal(err)
			}
			if err := im.Fence(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.Wait(); err != nil {
				t.Errorf("%s: %v: %s", how, err, errs.Bytes())
			}
		}
	}
}

var declared = regexp.MustCompile(`\b((?:vmmcx?|SBL)_\w+)\(`)

// Each call of the headers has rows in the table of bad arguments.
func TestBadArguments(t *testing.T) {
	out := run(t, vmmctest.Nodes(t, 1)[0], "bad")
	rows := strings.Split(out, "\n")
	for _, h := range []string{"include/vmmc.h", "include/vmmcx.h", "include/sbl.h"} {
		b, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		calls := declared.FindAllSubmatch(b, -1)
		if len(calls) == 0 {
			t.Errorf("%s declares no call", h)
		}
		for _, m := range calls {
			if !slices.Contains(rows, "row "+string(m[1])) {
				t.Errorf("%s has no row in test/bad.c", m[1])
			}
		}
	}
}

// The storm lasts as long as VMMC_STORM says, ten seconds otherwise.
func TestSignals(t *testing.T) {
	if testing.Short() {
		t.Skip("it lasts ten seconds")
	}
	length := 10 * time.Second
	if v := os.Getenv("VMMC_STORM"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("VMMC_STORM: %v", err)
		}
		length = d
	}
	nodes := vmmctest.Nodes(t, 2)
	seconds := strconv.Itoa(int(length / 2 / time.Second))
	t.Log(run(t, nodes[0], "storm", "", "0", seconds))
	p := nodes[1].Open(t)
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(1, m.Bytes()); err != nil {
		t.Fatal(err)
	}
	t.Log(run(t, nodes[0], "storm", nodes[1].Name(), strconv.Itoa(int(p.PID())), seconds))
}

// A program on another C library has the C part, which says that the Go part needs glibc.
func TestMusl(t *testing.T) {
	musl, err := exec.LookPath("musl-gcc")
	if err != nil {
		t.Skip("there is no musl-gcc")
	}
	testutil.CLibrary(t) // for its probe
	build := t.TempDir()
	make := exec.CommandContext(t.Context(), "make", "-s", "CC="+musl, "BUILD="+build)
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	path := filepath.Join(build, "another")
	cc := exec.CommandContext(t.Context(), musl, "-static", "-Iinclude", "-o", path, "test/musl/another.c",
		filepath.Join(build, "libvmmc.a"))
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "glibc") {
		t.Errorf("a program with musl says %q: %v", out, err)
	}
}

// The C part alone, with a stand-in for the Go part that these tools can look into.
func TestTools(t *testing.T) {
	testutil.CLibrary(t) // for its probe
	for _, tool := range []struct {
		name, cc, sanitize string
		wrap               []string
		programs           [][]string
	}{
		{"address and undefined behaviour", "gcc", "address,undefined", nil, [][]string{
			{"names"},
			{"redirect"},
			{"notify"},
			{"threads", "50"},
			{"forks"},
			{"jumps"},
			{"bad"},
			{"words"},
			{"polling"},
			{"storm", "", "0", "1"},
			{"inside", "probe"},
			{"inside", "closing", "300"},
			{"inside", "ends"},
			{"inside", "ends-closing", "300"},
			{"inside", "leaving"},
			{"polls", "queues", "300"},
			{"polls", "leaving"},
		}},
		{"threads", "gcc", "thread", nil, [][]string{
			{"names"},
			{"redirect"},
			{"notify"},
			{"threads", "50"},
			{"bad"},
			{"words"},
			{"polling"},
			{"storm", "", "0", "1"},
			{"inside", "probe"},
			{"inside", "closing", "300"},
			{"inside", "ends"},
			{"inside", "ends-closing", "300"},
			{"polls", "queues", "300"},
		}},
		{"another compiler", "clang", "", nil, [][]string{
			{"names"},
			{"redirect"},
			{"notify"},
			{"threads", "50"},
			{"forks"},
			{"jumps"},
			{"bad"},
			{"words"},
			{"polling"},
			{"storm", "", "0", "1"},
			{"inside", "probe"},
			{"inside", "closing", "300"},
			{"inside", "ends"},
			{"inside", "ends-closing", "300"},
			{"inside", "leaving"},
			{"polls", "queues", "300"},
			{"polls", "leaving"},
		}},
		{"valgrind", "gcc", "", []string{"valgrind", "-q", "--error-exitcode=99", "--fair-sched=yes"}, [][]string{
			{"redirect"}, {"notify"}, {"jumps"}, {"bad"}, {"words"}, {"polling"},
		}},
	} {
		t.Run(tool.name, func(t *testing.T) {
			if tool.wrap != nil {
				_, err := exec.LookPath(tool.wrap[0])
				testutil.Require(t, err == nil, "there is no "+tool.wrap[0])
			}
			_, err := exec.LookPath(tool.cc)
			testutil.Require(t, err == nil, "there is no "+tool.cc)
			build := t.TempDir()
			make := exec.CommandContext(t.Context(), "make", "-s", "STUB=1", "CC="+tool.cc, "BUILD="+build, "SANITIZE="+tool.sanitize)
			if out, err := make.CombinedOutput(); err != nil {
				t.Fatalf("make: %v\n%s", err, out)
			}
			flags := []string{"-L" + build, "-lvmmc", "-Wl,-rpath," + build}
			if tool.sanitize != "" {
				flags = append(flags, "-fsanitize="+tool.sanitize)
			}
			path, insidePath := filepath.Join(build, "prog"), filepath.Join(build, "inside")
			pollsPath := filepath.Join(build, "viplpolls")
			compile(t, path, flags...)
			compileInside(t, build, insidePath, flags[3:]...)
			compilePolls(t, build, pollsPath, flags[3:]...)
			for _, args := range tool.programs {
				argv := slices.Concat(tool.wrap, []string{path}, args)
				if args[0] == "inside" {
					argv = slices.Concat(tool.wrap, []string{insidePath}, args[1:])
				}
				if args[0] == "polls" {
					argv = slices.Concat(tool.wrap, []string{pollsPath}, args[1:])
				}
				c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
				c.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0") // it cannot run in all containers
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v: %v\n%s", args, err, out)
				}
			}
		})
	}
}

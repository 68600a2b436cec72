//go:build linux && (amd64 || arm64)

package c_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

var viplCompiled sync.Once

// viplProgram is the test program of libvipl, linked with the shared libraries in c/build.
func viplProgram(t *testing.T) string {
	t.Helper()
	build := testutil.CLibrary(t)
	path := filepath.Join(build, "viplprog")
	viplCompiled.Do(func() {
		compileVIPL(t, path, "-L"+build, "-lvipl", "-lvmmc", "-Wl,-rpath,"+build)
	})
	return path
}

func compileVIPL(t *testing.T, path string, flags ...string) {
	t.Helper()
	sources, err := filepath.Glob("vipl/test/*.c")
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-Ivipl/include", "-o", path},
		sources...)
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

func viplCommand(t *testing.T, on *vmmctest.Node, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), viplProgram(t), args...)
	c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), on.Environ()...)
	return c
}

// viplAlone runs a test of one process, and returns what it printed.
func viplAlone(t *testing.T, test string) string {
	t.Helper()
	c := viplCommand(t, vmmctest.Nodes(t, 1)[0], test)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", test, err, out, errs.Bytes())
	}
	return string(out)
}

// viplPair runs a test of two processes, on one node and on two.
func viplPair(t *testing.T, test string) {
	t.Helper()
	nodes := vmmctest.Nodes(t, 2)
	for i, where := range []string{"one node", "two nodes"} {
		t.Run(where, func(t *testing.T) {
			var outs [2]bytes.Buffer
			server := viplCommand(t, nodes[0], test, "server")
			client := viplCommand(t, nodes[i], test, "client", nodes[0].Name())
			both := []*exec.Cmd{server, client}
			var failed sync.Once
			var wg sync.WaitGroup
			for k, c := range both {
				c.Stdout, c.Stderr = &outs[k], &outs[k]
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
			}
			for k, c := range both {
				wg.Go(func() {
					if err := c.Wait(); err != nil {
						t.Errorf("%v: %v\n%s", c.Args[1:], err, outs[k].Bytes())
						failed.Do(func() { _ = both[1-k].Process.Kill() }) // it would wait for the other one
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestVIPLAlone(t *testing.T) {
	for _, test := range []string{"nic", "memory", "vis", "queues", "names", "waits", "handlers", "closes"} {
		t.Run(test, func(t *testing.T) { viplAlone(t, test) })
	}
}

func TestVIPLPingPong(t *testing.T) { viplPair(t, "pingpong") }

func TestVIPLData(t *testing.T) { viplPair(t, "data") }

func TestVIPLOrder(t *testing.T) { viplPair(t, "order") }

func TestVIPLFaults(t *testing.T) { viplPair(t, "faults") }

func TestVIPLConnections(t *testing.T) { viplPair(t, "connects") }

func TestVIPLPeers(t *testing.T) { viplPair(t, "peers") }

func TestVIPLThreads(t *testing.T) { viplPair(t, "threads") }

func TestVIPLCrowd(t *testing.T) { viplPair(t, "crowd") }

func TestVIPLRDMA(t *testing.T) { viplPair(t, "rdma") }

// The memory is whole pages of vmmcx_alloc.
func TestVIPLRDMAToPages(t *testing.T) { viplPair(t, "pages") }

// Registered memory that the program has protected since.
func TestVIPLMemoryGone(t *testing.T) { viplPair(t, "gone") }

func TestVIPLCompletionQueues(t *testing.T) { viplPair(t, "completions") }

func TestVIPLNotify(t *testing.T) { viplPair(t, "notifies") }

func TestVIPLEnds(t *testing.T) { viplPair(t, "ends") }

// The server is killed while the client waits for a message of it.
func TestVIPLKilled(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for i, where := range []string{"one node", "two nodes"} {
		t.Run(where, func(t *testing.T) {
			server := viplCommand(t, nodes[0], "killed", "server")
			out, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var serverErrs, clientOut bytes.Buffer
			server.Stderr = &serverErrs
			client := viplCommand(t, nodes[i], "killed", "client", nodes[0].Name())
			client.Stdout, client.Stderr = &clientOut, &clientOut
			for _, c := range []*exec.Cmd{server, client} {
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
			}
			line := make([]byte, len("connected\n"))
			_, err = out.Read(line)
			time.Sleep(100 * time.Millisecond) // so that the client mostly waits
			_ = server.Process.Kill()
			_ = server.Wait()
			if cerr := client.Wait(); err != nil || cerr != nil {
				t.Errorf("server: %v %s, client: %v\n%s", err, serverErrs.Bytes(), cerr, clientOut.Bytes())
			}
		})
	}
}

var viplDeclared = regexp.MustCompile(`(?m)^(?:VIP_RETURN|VIP_PVOID|void) (Vip\w+)\(`)

// viplCalls are the calls that vipl.h declares.
func viplCalls(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("vipl/include/vipl.h")
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, m := range viplDeclared.FindAllSubmatch(b, -1) {
		calls = append(calls, string(m[1]))
	}
	if len(calls) != 46 {
		t.Fatalf("vipl.h declares %d calls: the guide has 41, and Giganet 5 more", len(calls))
	}
	return calls
}

// Each call of vipl.h has rows in the table of bad arguments.
func TestVIPLBadArguments(t *testing.T) {
	rows := strings.Split(viplAlone(t, "bad"), "\n")
	for _, call := range viplCalls(t) {
		if !slices.Contains(rows, "row "+call) {
			t.Errorf("%s has no row in vipl/test/bad.c", call)
		}
	}
}

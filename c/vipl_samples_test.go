//go:build linux && (amd64 || arm64)

package c_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// The samples, on one node and between nodes. Each of them checks what has arrived.
func TestVIPLSamples(t *testing.T) {
	build := testutil.CLibrary(t)
	include, err := filepath.Abs("vipl/include")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	make := exec.CommandContext(t.Context(), "make", "-s", "-C", "../samples/c/vipl", "BIN="+bin, "CFLAGS=-O2",
		"VIPL_CFLAGS=-I"+include, "VIPL_LIBS=-L"+build+" -lvipl -lvmmc -Wl,-rpath,"+build)
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	nodes := vmmctest.Nodes(t, 2)
	sample := func(on *vmmctest.Node, args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), filepath.Join(bin, args[0]), args[1:]...)
		c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), on.Environ()...)
		return c
	}
	out, err := sample(nodes[0], "names", nodes[0].Name(), nodes[1].Name()).CombinedOutput()
	if got := string(out); err != nil || !strings.Contains(got, "nic0: address ") || !strings.Contains(got, nodes[1].Name()+": address ") {
		t.Errorf("names: %v\n%s", err, out)
	}
	if out, err := sample(nodes[0], "names", "no-such-node").CombinedOutput(); err == nil {
		t.Errorf("names of a node that is not there has succeeded:\n%s", out)
	}
	for _, n := range nodes {
		for _, run := range []struct {
			args         []string
			server, want string
		}{
			{[]string{"pingpong", nodes[0].Name(), "64", "200"}, "", "200 messages checked"},
			{[]string{"pingpong", nodes[0].Name(), "1048576", "3"}, "", "3 messages checked"},
			{[]string{"bandwidth", nodes[0].Name(), "65536", "100"}, "65536 bytes are as they were written", "MB/s"},
		} {
			server := sample(nodes[0], run.args[0], "server")
			var said bytes.Buffer
			server.Stdout, server.Stderr = &said, &said
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			out, err := sample(n, run.args...).CombinedOutput()
			if err != nil {
				_ = server.Process.Kill() // it would wait
			}
			serr := server.Wait()
			if err != nil || serr != nil || !strings.Contains(string(out), run.want) || !strings.Contains(said.String(), run.server) {
				t.Errorf("%v: %v, server %v\n%s%s", run.args, err, serr, out, said.Bytes())
			}
		}
	}
}

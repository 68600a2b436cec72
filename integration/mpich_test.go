//go:build linux && amd64

package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// Programs that are linked with Debian's MPICH run on libmpich at two nodes with addresses of their own:
// NetPIPE, which checks each byte, and one in Fortran.
func TestMPICHAcrossNamespaces(t *testing.T) {
	const header, lib = "/usr/include/x86_64-linux-gnu/mpich", "/usr/lib/x86_64-linux-gnu/"
	hydra, err := exec.LookPath("mpiexec.hydra")
	if err != nil {
		t.Skipf("no launcher of MPICH (mpich): %v", err)
	}
	netpipe, err := exec.LookPath("NPmpich2")
	if err != nil {
		t.Skipf("no NetPIPE for MPICH (netpipe-mpich2): %v", err)
	}
	gfortran, err := exec.LookPath("gfortran")
	if err != nil {
		t.Skipf("no compiler for Fortran (gfortran): %v", err)
	}
	build := testutil.CLibrary(t)
	plain := filepath.Join(t.TempDir(), "plain")
	if out, err := exec.CommandContext(t.Context(), gfortran, "-fallow-argument-mismatch", "-I"+header,
		"-J"+t.TempDir(), "-o", plain, "../c/mpich/test/plain.f90", lib+"libmpichfort.so.12", lib+"libmpich.so.12").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	net := testutil.NewNet(t, 2)
	cl := up(t, 2, []string{net[0].Addr, net[1].Addr}, func(i int, c *exec.Cmd) *exec.Cmd { return net[i].Enter(c) })
	run := func(program string, args ...string) string {
		t.Helper()
		var line []string
		for i, ns := range net {
			if i > 0 {
				line = append(line, ":")
			}
			line = append(line, "-n", "1", "-env", "VMMC_SOCKET", cl.socket(i))
			line = append(line, ns.Enter(exec.CommandContext(t.Context(), program, args...)).Args...)
		}
		c := exec.CommandContext(t.Context(), hydra, line...)
		c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+build)
		c.Dir = t.TempDir()
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
		}
		return string(out)
	}
	if out := run(plain); out != "ok\n" {
		t.Errorf("the program in Fortran has printed %q, want ok", out)
	}
	const sizes = 28
	out := run(netpipe, "-i", "-u", "65536", "-n", "20")
	if n := bytes.Count([]byte(out), []byte("Integrity check passed")); n != sizes {
		t.Errorf("%d sizes have passed NetPIPE's check, want %d:\n%s", n, sizes, out)
	}
	// The ranks' messages have gone over the network between the two.
	counter, err := net[1].Command("cat", "/sys/class/net/eth0/statistics/rx_bytes").Output()
	if err != nil {
		t.Fatal(err)
	}
	const least = 1 << 20
	if n, err := strconv.Atoi(strings.TrimSpace(string(counter))); err != nil || n < least {
		t.Errorf("%q bytes have come over the network (%v), want %d or more", counter, err, least)
	}
}

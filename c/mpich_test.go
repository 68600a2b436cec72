//go:build linux && amd64

package c_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// mpichHeader is the folder of Debian's header for MPICH.
const mpichHeader = "/usr/include/x86_64-linux-gnu/mpich"

// mpichLibrary is Debian's library, which programs are linked with.
const mpichLibrary = "/usr/lib/x86_64-linux-gnu/libmpich.so.12"

// needMPICH skips a test where Debian's header and library are not installed.
func needMPICH(t *testing.T) {
	t.Helper()
	for _, path := range []string{mpichHeader + "/mpi.h", mpichLibrary} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("no MPICH of Debian to compile with (libmpich-dev): %v", err)
		}
	}
}

// outputOf runs a command that must succeed.
func outputOf(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// mpichProgram compiles a program in C as a user of MPICH does: with Debian's header and library.
func mpichProgram(t *testing.T, source string, flags ...string) string {
	t.Helper()
	needMPICH(t)
	program := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	// The header declares MPI_STATUSES_IGNORE so that the compiler takes it for too short.
	args := append([]string{
		"-std=gnu99", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow", "-I" + mpichHeader, "-o", program, source,
		mpichLibrary,
	}, flags...)
	outputOf(t, "gcc", args...)
	return program
}

// underMPIrun is the command that runs a program for MPICH with some ranks of a node.
func underMPIrun(ctx context.Context, t *testing.T, node *vmmctest.Node, ranks, program string, args ...string) *exec.Cmd {
	t.Helper()
	build := testutil.CLibrary(t)
	_, vmmc := mpiProgram(t)
	c := exec.CommandContext(ctx, vmmc, append([]string{"mpirun", "-n", ranks, program}, args...)...)
	c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere", "VMMC_LIBDIR="+build), node.Environ()...)
	return c
}

// Debian's header has the values that the conversions are made from.
func TestMPICHValues(t *testing.T) {
	needMPICH(t)
	program := filepath.Join(t.TempDir(), "abi")
	outputOf(t, "gcc", "-w", "-I"+mpichHeader, "-o", program, "mpich/abi/abi.c")
	// The variables of the header are not asked for, so no library is needed.
	printed := string(outputOf(t, program))
	values, sizes, _ := strings.Cut(printed, "size ")
	want, err := os.ReadFile("../internal/mpiabi/mpich.txt")
	if err != nil {
		t.Fatal(err)
	}
	normal := func(text string) []string {
		var lines []string
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
			v, err := strconv.ParseInt(value, 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, name+" "+strconv.Itoa(int(int32(v)))) // The table has ints in hexadecimal.
		}
		return lines
	}
	got, wanted := normal(values), normal(string(want))
	if !slices.Equal(got, wanted) {
		t.Errorf("the header has %q, want those of mpich.txt: %q", got, wanted)
	}
	layout, err := os.ReadFile("mpich/layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	if "size "+sizes != string(layout) {
		t.Errorf("the header's types are\nsize %s\nwant\n%s", sizes, layout)
	}
}

// The library has each name that Debian's has.
func TestMPICHNames(t *testing.T) {
	needMPICH(t)
	names := func(path string) map[string]bool {
		all := map[string]bool{}
		for line := range bytes.Lines(outputOf(t, "nm", "-D", "--defined-only", path)) {
			f := strings.Fields(string(line))
			all[f[len(f)-1]] = true
		}
		return all
	}
	ours := names(filepath.Join(testutil.CLibrary(t), "libmpich.so.12"))
	theirs := names(mpichLibrary)
	if len(theirs) < 1300 {
		t.Fatalf("%s has %d names, want at least 1300", mpichLibrary, len(theirs))
	}
	for name := range theirs {
		if !ours[name] {
			t.Errorf("libmpich.so.12 has no %s", name)
		}
	}
}

// Programs that are linked with Debian's library run as they are, and what the two interfaces have
// other values for is converted.
func TestMPICHPrograms(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	for _, one := range []struct {
		source string
		ranks  []string
	}{
		{"mpich/test/values.c", []string{"1", "2", "3"}},
		{"mpi/test/calls.c", []string{"2"}},
	} {
		program := mpichProgram(t, one.source)
		for _, ranks := range one.ranks {
			var args []string
			if one.source == "mpich/test/values.c" {
				args = append(args, t.TempDir())
			}
			out, err := underMPIrun(t.Context(), t, node, ranks, program, args...).CombinedOutput()
			if err != nil || string(out) != "ok\n" {
				t.Errorf("%s on %s ranks: %v\n%s", one.source, ranks, err, out)
			}
		}
	}
}

// fortranProgram compiles a program in Fortran as a user of MPICH does. It is linked with Debian's
// libmpichfort too, which stands on libmpich.
func fortranProgram(t *testing.T, source string, flags ...string) string {
	t.Helper()
	needMPICH(t)
	if _, err := exec.LookPath("gfortran"); err != nil {
		t.Skipf("no compiler for Fortran (gfortran): %v", err)
	}
	program := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".f90"))
	// The module mpi of MPICH has no interfaces for calls with buffers of several types.
	args := append([]string{
		"-Wall", "-fallow-argument-mismatch", "-I" + mpichHeader, "-J" + t.TempDir(), "-o", program, source,
		strings.Replace(mpichLibrary, "libmpich", "libmpichfort", 1), mpichLibrary,
	}, flags...)
	outputOf(t, "gfortran", args...)
	return program
}

// Programs in Fortran run on Debian's libmpichfort and this library.
func TestMPICHFortran(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	for _, name := range []string{"plain", "modern"} {
		program := fortranProgram(t, "mpich/test/"+name+".f90")
		for _, ranks := range []string{"1", "3"} {
			out, err := underMPIrun(t.Context(), t, node, ranks, program).CombinedOutput()
			if err != nil || string(out) != "ok\n" {
				t.Errorf("%s.f90 on %s ranks: %v\n%s", name, ranks, err, out)
			}
		}
	}
}

// netpipe runs NPmpich2, as Debian has it, which checks what it gets.
func netpipe(t *testing.T, command *exec.Cmd) {
	t.Helper()
	command.Dir = t.TempDir()
	const sizes = 28
	out, err := command.CombinedOutput()
	checked := 0
	for line := range bytes.Lines(out) {
		if bytes.Contains(line, []byte("Integrity check passed")) {
			checked++
		}
		if bytes.Contains(line, []byte("ailed")) {
			t.Errorf("it says %q", line)
		}
	}
	if err != nil || checked != sizes {
		t.Errorf("%v, and %d sizes have passed the check, want %d:\n%s", err, checked, sizes, out)
	}
}

// NetPIPE of Debian's package finds no wrong byte.
func TestMPICHNetpipe(t *testing.T) {
	program, err := exec.LookPath("NPmpich2")
	if err != nil {
		t.Skipf("no NetPIPE for MPICH (netpipe-mpich2): %v", err)
	}
	node := vmmctest.Nodes(t, 1)[0]
	netpipe(t, underMPIrun(t.Context(), t, node, "2", program, "-i", "-u", "65536", "-n", "20"))
}

// What the benchmark of this project does with MPI works.
func TestMPICHBenchmark(t *testing.T) {
	program := mpichProgram(t, "../bench/c/mpi.c")
	node := vmmctest.Nodes(t, 1)[0]
	work := []string{"1", "send:8:50", "send:1048576:5", "put:8:50", "get:8:50", "sendbw:4096:128", "putbw:4096:128"}
	out, err := underMPIrun(t.Context(), t, node, "2", program, work...).CombinedOutput()
	if lines := strings.Count(string(out), "\n"); err != nil || lines != len(work)-1 {
		t.Errorf("%v, and %d results, want %d:\n%s", err, lines, len(work)-1, out)
	}
}

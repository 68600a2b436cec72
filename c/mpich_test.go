//go:build linux && amd64

package c_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
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

// A program with MPI's classes of C++ runs on Debian's libmpichcxx and this library.
func TestMPICHClasses(t *testing.T) {
	needMPICH(t)
	program := filepath.Join(t.TempDir(), "classes")
	outputOf(t, "g++", "-w", "-I"+mpichHeader, "-o", program, "mpich/test/classes.cc",
		strings.Replace(mpichLibrary, "libmpich", "libmpichcxx", 1), mpichLibrary)
	node := vmmctest.Nodes(t, 1)[0]
	for _, ranks := range []string{"1", "3"} {
		out, err := underMPIrun(t.Context(), t, node, ranks, program).CombinedOutput()
		if err != nil || string(out) != "ok\n" {
			t.Errorf("%s ranks: %v\n%s", ranks, err, out)
		}
	}
}

// What is installed has the library by both of its names, and "vmmc doctor" says which one serves a program
// that is linked with Debian's.
func TestMPICHInstalled(t *testing.T) {
	build := testutil.CLibrary(t)
	usr := t.TempDir()
	outputOf(t, "make", "-s", "install", "CC=gcc", "BUILD="+build, "PREFIX="+usr)
	for _, name := range []string{"libmpich.so.12", "libmpi.so.12"} {
		headers := string(outputOf(t, "readelf", "-d", filepath.Join(usr, "lib", name)))
		if !strings.Contains(headers, "Library soname: [libmpich.so.12]") || !strings.Contains(headers, "[libvmmc.so.2]") {
			t.Errorf("%s is not the library:\n%s", name, headers)
		}
	}
	program := mpichProgram(t, "mpich/test/values.c")
	_, command := mpiProgram(t)
	vmmc := filepath.Join(usr, "bin", "vmmc") // It looks into ../lib.
	outputOf(t, "install", "-D", command, vmmc)
	out, _ := exec.CommandContext(t.Context(), vmmc, "doctor", "--mpi", program).CombinedOutput() // Its status is about other matters too.
	want := "built for MPICH's ABI, and " + filepath.Join(usr, "lib", "libmpich.so.12") + " serves it"
	if !strings.Contains(string(out), want) {
		t.Errorf("vmmc doctor says\n%s\nwant %q in it", out, want)
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

// Libraries that are packages, linked with MPICH, run on this one under programs of their users.
func TestMPICHPackages(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	const lib = "/usr/lib/x86_64-linux-gnu"
	for _, one := range []struct {
		name, needs, source string
		flags               []string
		file                bool // it takes the name of a file
	}{
		{
			"parallel HDF5", lib + "/hdf5/mpich/libhdf5.so", "mpich/test/hdf5.c",
			[]string{"-I/usr/include/hdf5/mpich", lib + "/hdf5/mpich/libhdf5.so"},
			true,
		},
		{
			"ScaLAPACK", lib + "/libscalapack-mpich.so.2.2", "mpich/test/pdgesv.f90",
			[]string{lib + "/libscalapack-mpich.so.2.2", lib + "/liblapack.so.3", lib + "/libblas.so.3"},
			false,
		},
	} {
		t.Run(one.name, func(t *testing.T) {
			if _, err := os.Stat(one.needs); err != nil {
				t.Skipf("it is not installed: %v", err)
			}
			build := mpichProgram
			if strings.HasSuffix(one.source, ".f90") {
				build = fortranProgram
			}
			program := build(t, one.source, one.flags...)
			for _, ranks := range []string{"1", "2", "4"} {
				var args []string
				if one.file {
					args = append(args, filepath.Join(t.TempDir(), "table.h5"))
				}
				out, err := underMPIrun(t.Context(), t, node, ranks, program, args...).CombinedOutput()
				if err != nil || string(out) != "ok\n" {
					t.Errorf("%s ranks: %v\n%s", ranks, err, out)
				}
			}
		})
	}
}

// Mocassin of Debian's package computes the smallest nebula that it has as a benchmark, on a coarse grid: it
// ends well, and hydrogen's line beta has the strength that it should have.
func TestMPICHMocassin(t *testing.T) {
	program, err := exec.LookPath("mocassin")
	if err != nil {
		t.Skipf("no program for MPICH that is a package (mocassin): %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"input", "output"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"input.in": mocassinInput, "abunHII20.in": mocassinAbundances} {
		if err := os.WriteFile(filepath.Join(dir, "input", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := underMPIrun(t.Context(), t, vmmctest.Nodes(t, 1)[0], "2", program)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("clean exit")) {
		t.Fatalf("%v:\n%s", err, out)
	}
	lines, err := os.ReadFile(filepath.Join(dir, "output", "lineFlux.out"))
	if err != nil {
		t.Fatal(err)
	}
	const want, share = 5.3, 0.1 // 10^36 erg/s
	_, rest, found := strings.Cut(string(lines), "Hbeta [E36 erg/s]:")
	words := strings.Fields(rest)
	if !found || len(words) == 0 {
		t.Fatalf("output/lineFlux.out has no line beta of hydrogen:\n%s", lines)
	}
	if got, err := strconv.ParseFloat(words[0], 64); err != nil || math.Abs(got-want) > share*want {
		t.Errorf("line beta of hydrogen is %s (%v), want %v within %v", words[0], err, want, share*want)
	}
}

// underHydra is the command that runs a program with a rank at each node, by MPICH's launcher.
func underHydra(ctx context.Context, t *testing.T, nodes []*vmmctest.Node, program string, args ...string) *exec.Cmd {
	t.Helper()
	hydra, err := exec.LookPath("mpiexec.hydra")
	if err != nil {
		t.Skipf("no launcher of MPICH (mpich): %v", err)
	}
	var line []string
	for i, node := range nodes {
		if i > 0 {
			line = append(line, ":")
		}
		line = append(line, "-n", "1")
		for _, variable := range node.Environ() {
			name, value, _ := strings.Cut(variable, "=")
			line = append(line, "-env", name, value)
		}
		line = append(append(line, program), args...)
	}
	c := exec.CommandContext(ctx, hydra, line...)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+testutil.CLibrary(t))
	return c
}

// Under MPICH's own launcher a program has this library by the linker's search path. The ranks are at two
// nodes, so that their messages go over a network.
func TestMPICHHydraAtTwoNodes(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	for _, one := range []struct {
		program string
		args    []string
	}{
		{mpichProgram(t, "mpich/test/values.c"), []string{t.TempDir()}},
		{fortranProgram(t, "mpich/test/plain.f90"), nil},
		{fortranProgram(t, "mpich/test/modern.f90"), nil},
	} {
		out, err := underHydra(t.Context(), t, nodes, one.program, one.args...).CombinedOutput()
		if err != nil || string(out) != "ok\n" {
			t.Errorf("%s: %v\n%s", filepath.Base(one.program), err, out)
		}
	}
	if program, err := exec.LookPath("NPmpich2"); err == nil {
		netpipe(t, underHydra(t.Context(), t, nodes, program, "-i", "-u", "65536", "-n", "20"))
	}
}

// sweepSkips are functions that may do what they are told by zeros: end the program, or store at an address
// that they must not be given.
var sweepSkips = []string{"MPI_Abort", "MPI_Finalize", "MPI_Init", "MPI_Init_thread", "MPIR_Dup_fn"}

// No function of the library fails by a wrong handle, or by an address that is NULL. Nearly all return an
// error.
func TestMPICHZeros(t *testing.T) {
	program := mpichProgram(t, "mpich/test/sweep.c", "-ldl")
	var names []string
	for line := range bytes.Lines(outputOf(t, "nm", "-D", "--defined-only", filepath.Join(testutil.CLibrary(t), "libmpich.so.12"))) {
		f := strings.Fields(string(line))
		if kind, name := f[len(f)-2], f[len(f)-1]; kind == "T" || kind == "W" {
			if !slices.Contains(sweepSkips, name) && !slices.Contains(sweepSkips, strings.TrimPrefix(name, "P")) {
				names = append(names, name)
			}
		}
	}
	c := underMPIrun(t.Context(), t, vmmctest.Nodes(t, 1)[0], "1", program)
	c.Stdin = strings.NewReader(strings.Join(names, "\n"))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	said := stderr.String()
	if err != nil {
		t.Fatalf("%v: it has printed %q and last\n%s", err, out, said[max(0, len(said)-500):])
	}
	var calls, errors int
	_, err = fmt.Sscan(string(out), &calls, &errors)
	t.Logf("%d functions called, %d errors", calls, errors)
	if err != nil || calls != len(names) || calls < 1300 || errors < calls*3/4 {
		t.Errorf("%d functions of %d have been called (%v), and %d have returned errors, want at least three quarters", calls, len(names), err, errors)
	}
}

// mocassinInput is the benchmark HII20 of Mocassin with fewer cells, packets and iterations.
const mocassinInput = `TStellar 20000.
output
symmetricXYZ
Hdensity 100.
TeStart 6000.
contShape  blackbody
nebComposition "input/abunHII20.in"
maxIterateMC  3 100.
nPhotons 20000
nx 5
ny 5
nz 5
nbins 600
LPhot 1.006e13
nuMax 15.
nuMin 1.001e-5
Rin 30.e17
Rout 0.95E+19
edges 0.95E+19 0.95E+19 0.95E+19
convLimit 0.09
nstages 6
`

// mocassinAbundances are its elements, by number from hydrogen on: 0 is none.
const mocassinAbundances = `1.     ! H
0.1    ! He
0.     ! Li
0.     ! Be
0.     ! B
2.2e-4 ! C
4.e-5  ! N
3.3e-4 ! O
0.     ! F        
5.e-5  ! Ne   
0.     ! Na        
0.  ! Mg   
0.     ! Al   
0.  ! Si   
0.     ! P   
9.e-6  ! S   
0.     ! Cl   
0.  ! Ar   
0.     ! K   
0.     ! Ca   
0.     ! Sc   
0.     ! Ti   
0.     ! V   
0.     ! Cr   
0.     ! Mn   
0.  ! Fe   
0.     ! Co   
0.     ! Ni   
0.     ! Cu   
0.     ! Zn   
`

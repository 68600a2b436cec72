//go:build linux && (amd64 || arm64)

package c_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

var mpiCompiled sync.Once

// mpiProgram is a program in C that is linked with libmpi_abi alone, and the command vmmc.
func mpiProgram(t *testing.T) (program, vmmc string) {
	t.Helper()
	build := testutil.CLibrary(t)
	program, vmmc = filepath.Join(build, "mpiring"), filepath.Join(build, "mpivmmc")
	mpiCompiled.Do(func() {
		for _, c := range [][]string{
			{
				"gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Impi/include", "-o", program, "mpi/test/ring.c",
				"-L" + build, "-lmpi_abi", "-Wl,-rpath," + build,
			},
			{"go", "build", "-o", vmmc, "../cmd/vmmc"},
		} {
			if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", c[0], err, out)
			}
		}
	})
	return program, vmmc
}

// mpirun runs the program with some ranks.
func mpirun(t *testing.T, ranks string, args ...string) (string, error) {
	t.Helper()
	program, vmmc := mpiProgram(t)
	c := exec.CommandContext(t.Context(), vmmc, append([]string{"mpirun", "-n", ranks, program}, args...)...)
	c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), vmmctest.Nodes(t, 1)[0].Environ()...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// A program in C passes a number around.
func TestMPIRing(t *testing.T) {
	for ranks, want := range map[string]string{"1": "1 ranks, sum 1\n", "4": "4 ranks, sum 10\n"} {
		if out, err := mpirun(t, ranks); err != nil || out != want {
			t.Errorf("%s ranks: %v, printed %q, want %q", ranks, err, out, want)
		}
	}
}

// An error ends the job by default, and its line names the call and the rank.
func TestMPIErrorsAreFatal(t *testing.T) {
	out, err := mpirun(t, "2", "truncate")
	if err == nil || !strings.Contains(out, "MPI_Recv") || !strings.Contains(out, "rank 1 of MPI_COMM_WORLD") {
		t.Errorf("a message longer than the buffer: %v\n%s", err, out)
	}
}

// Calls of several chapters give what the standard says, with operations, error handlers and attributes
// whose functions are the program's.
func TestMPICalls(t *testing.T) {
	build := testutil.CLibrary(t)
	_, vmmc := mpiProgram(t)
	program := filepath.Join(build, "mpicalls")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-Impi/include",
		"-o", program, "mpi/test/calls.c", "-L"+build, "-lmpi_abi", "-Wl,-rpath,"+build).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	node := vmmctest.Nodes(t, 1)[0]
	for _, ranks := range []string{"1", "2", "5"} {
		c := exec.CommandContext(t.Context(), vmmc, "mpirun", "-n", ranks, program)
		c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), node.Environ()...)
		if out, err := c.CombinedOutput(); err != nil || string(out) != "ok\n" {
			t.Errorf("%s ranks: %v\n%s", ranks, err, out)
		}
	}
	c := exec.CommandContext(t.Context(), vmmc, "mpirun", "-n", "1", program, "abort")
	c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), node.Environ()...)
	out, err := c.Output()
	if string(out) != "ok\n" || c.ProcessState.ExitCode() != 7 {
		t.Errorf("a program that calls MPI_Abort with 7 has printed %q, and ended with %v", out, err)
	}
}

// testedProgram compiles a program of mpi/test.
func testedProgram(t *testing.T, name string) (program, vmmc string) {
	t.Helper()
	build := testutil.CLibrary(t)
	_, vmmc = mpiProgram(t)
	program = filepath.Join(build, "mpi"+name)
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Impi/include",
		"-o", program, "mpi/test/"+name+".c", "-L"+build, "-lmpi_abi", "-lpthread", "-Wl,-rpath,"+build).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program, vmmc
}

// testProgram runs a program of mpi/test with some numbers of ranks. It prints "ok".
func testProgram(t *testing.T, name string, ranks ...string) {
	t.Helper()
	program, vmmc := testedProgram(t, name)
	node := vmmctest.Nodes(t, 1)[0]
	for _, n := range ranks {
		c := exec.CommandContext(t.Context(), vmmc, "mpirun", "-n", n, program)
		c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), node.Environ()...)
		if out, err := c.CombinedOutput(); err != nil || string(out) != "ok\n" {
			t.Errorf("%s ranks: %v\n%s", n, err, out)
		}
	}
}

// Programs in C spawn others and meet by names. What they spawn has no signal blocked.
func TestMPIProcesses(t *testing.T) { testProgram(t, "process", "1", "3") }

// Shared windows, partitioned messages and external32 in C.
func TestMPIMemory(t *testing.T) { testProgram(t, "memory", "1", "3") }

// Sessions in C may follow one another, and their job ends with the program.
func TestMPISessions(t *testing.T) { testProgram(t, "session", "1", "3") }

// A child of fork that calls MPI ends alone, with a line that says why. It prints nothing that its parent has
// buffered, and the job goes on.
func TestMPIFork(t *testing.T) {
	program, vmmc := testedProgram(t, "fork")
	c := exec.CommandContext(t.Context(), vmmc, "mpirun", "-n", "2", program)
	c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), vmmctest.Nodes(t, 1)[0].Environ()...)
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	// Two children of each rank have asked. Ranks print in any order.
	rest := strings.ReplaceAll(string(out), "asked, ", "")
	if err != nil || rest != "buffered, the child has ended with 1\n" || strings.Count(string(out), "asked, ") != 4 {
		t.Errorf("%v, printed %q", err, out)
	}
	if line := said.String(); !strings.HasPrefix(line, "MPI_Comm_rank: ") || !strings.Contains(line, "forked") ||
		strings.Count(line, "\n") != 1 {
		t.Errorf("the child says %q, want one line that names the call and says that it was forked", line)
	}
}

// A libmpi_abi of another release has other numbers of calls. The program ends at its first call, with a
// line that names both files.
func TestMPIOtherRelease(t *testing.T) {
	program, _ := mpiProgram(t)
	build, dir := testutil.CLibrary(t), t.TempDir()
	calls, err := os.ReadFile("mpi/src/calls.c")
	if err != nil {
		t.Fatal(err)
	}
	const table = "const uint64_t mpi_table = 0x"
	other := strings.Replace(string(calls), table, table+"1^0x", 1)
	source, library := filepath.Join(dir, "calls.c"), filepath.Join(dir, "libmpi_abi.so.1")
	if err := os.WriteFile(source, []byte(other), 0o600); err != nil || other == string(calls) {
		t.Fatalf("calls.c is as it was, or could not be written: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-fvisibility=hidden", "-DVMMC_VERSION=\"0\"",
		"-Impi/src", "-Isrc", "-Iinclude", "-Impi/include", "-o", library, "-Wl,-soname,libmpi_abi.so.1",
		source, "mpi/src/call.c", "mpi/src/alone.c", "-L"+build, "-lvmmc", "-Wl,-rpath,"+build).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := exec.CommandContext(t.Context(), program)
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	out, err := c.CombinedOutput()
	line := string(out)
	if c.ProcessState.ExitCode() != 1 || !strings.HasPrefix(line, "MPI_Init: ") || strings.Count(line, "\n") != 1 {
		t.Errorf("%v, and it says %q, want status 1 and one line that names the call", err, line)
	}
	for _, want := range []string{"install one release", library, "libvmmc-go.so"} {
		if !strings.Contains(line, want) {
			t.Errorf("it says %q, want %q in it", line, want)
		}
	}
}

// What needs no other rank works without MPI_Init.
func TestMPIAlone(t *testing.T) {
	program, _ := mpiProgram(t)
	if out, err := exec.CommandContext(t.Context(), program, "alone").CombinedOutput(); err != nil || string(out) != "alone ok\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// The header is that of each language and standard.
func TestMPIHeader(t *testing.T) {
	const fragment = "#include <mpi.h>\n#include <mpi.h>\nMPI_Comm c = MPI_COMM_WORLD;\nint any = MPI_ANY_SOURCE;\n" +
		"MPI_Comm_copy_attr_function *f = MPI_COMM_DUP_FN;\n"
	checkHeader(t, "mpi/include", fragment)
}

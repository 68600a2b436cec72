//go:build linux && (amd64 || arm64)

package c_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

var mpiModules sync.Once

// fortran compiles a program in Fortran as mpifort does, and returns its path.
func fortran(t *testing.T, source string, flags ...string) string {
	t.Helper()
	build := testutil.CLibrary(t)
	_, err := exec.LookPath("gfortran")
	testutil.Require(t, err == nil, "there is no gfortran")
	mpiModules.Do(func() {
		if out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", ".", "CC=gcc", "FC=gfortran", "modules").CombinedOutput(); err != nil {
			t.Fatalf("make modules: %v\n%s", err, out)
		}
	})
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	args := append([]string{
		"-g", "-O2", "-fallow-argument-mismatch", "-w", "-Impi/fort/include", "-I" + build + "/vmmc/fortran", "-J" + dir, "-o", program,
	}, flags...)
	args = append(args, source, "-L"+build, "-lmpifort_abi", "-lmpi_abi", "-Wl,-rpath,"+build)
	if out, err := exec.CommandContext(t.Context(), "gfortran", args...).CombinedOutput(); err != nil {
		t.Fatalf("gfortran %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return program
}

// Programs in fixed form with mpif.h, with module mpi, and with module mpi_f08 get what the standard says.
func TestMPIFortran(t *testing.T) {
	_, vmmc := mpiProgram(t)
	for _, source := range []string{"old.f", "types.f90", "modern.f90", "more.f90"} {
		t.Run(source, func(t *testing.T) {
			program := fortran(t, "mpi/test/fort/"+source)
			node := vmmctest.Nodes(t, 1)[0]
			for _, ranks := range []string{"1", "3"} {
				c := exec.CommandContext(t.Context(), vmmc, "mpirun", "-n", ranks, program, filepath.Join(t.TempDir(), "file"))
				c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), node.Environ()...)
				if out, err := c.CombinedOutput(); err != nil || string(out) != "ok\n" {
					t.Errorf("%s ranks: %v\n%s", ranks, err, out)
				}
			}
		})
	}
}

// A tool that defines MPI_Barrier sees Fortran's calls of it. A program may have 256 functions of a type.
// The library says what LOGICAL is.
func TestMPIFortranProfiling(t *testing.T) {
	build := testutil.CLibrary(t)
	_, vmmc := mpiProgram(t)
	tool := filepath.Join(t.TempDir(), "tool.o")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-Impi/include", "-c",
		"-o", tool, "mpi/test/fort/tool.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Without lazy binding a name that the library lacks would be found here.
	program := fortran(t, "mpi/test/fort/profiled.f90", tool, "-Wl,-z,now", "-Wl,-rpath-link,"+build)
	c := exec.CommandContext(t.Context(), vmmc, "mpirun", "-n", "1", program)
	c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere"), vmmctest.Nodes(t, 1)[0].Environ()...)
	if out, err := c.CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// mpifort of an installed library compiles programs. Without gfortran the installation leaves out the
// modules, and says so.
func TestMPIFortranInstalled(t *testing.T) {
	_, vmmc := mpiProgram(t)
	_, err := exec.LookPath("gfortran")
	testutil.Require(t, err == nil, "there is no gfortran")
	prefix := filepath.Join(t.TempDir(), "usr")
	if out, err := exec.CommandContext(t.Context(), "make", "-s", "CC=gcc", "install", "PREFIX="+prefix, "DESTDIR=").CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	mpifort := filepath.Join(prefix, "lib", "vmmc", "bin", "mpifort")
	b, err := os.ReadFile(mpifort)
	if err != nil {
		t.Fatal(err)
	}
	// It was built for another place.
	b = bytes.ReplaceAll(b, []byte("/usr/local"), []byte(prefix))
	if err := os.WriteFile(mpifort, b, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), mpifort, "-show", "-c", "a.f90").Output()
	if want := "gfortran -fallow-argument-mismatch -I" + prefix + "/include/vmmc -I" + prefix + "/lib/vmmc/fortran -c a.f90\n"; err != nil || string(out) != want {
		t.Errorf("mpifort -show: %v, %q, want %q", err, out, want)
	}
	node := vmmctest.Nodes(t, 1)[0]
	for _, source := range []string{"old.f", "modern.f90"} {
		program := filepath.Join(t.TempDir(), "program")
		if out, err := exec.CommandContext(t.Context(), mpifort, "-w", "-J"+t.TempDir(), "-o", program, "mpi/test/fort/"+source).CombinedOutput(); err != nil {
			t.Fatalf("mpifort %s: %v\n%s", source, err, out)
		}
		c := exec.CommandContext(t.Context(), vmmc, "mpirun", "-n", "2", program)
		c.Env = append(append(os.Environ(), "VMMC_SOCKET=/nowhere", "VMMC_GO_LIBRARY="+prefix+"/lib/vmmc/libvmmc-go.so"), node.Environ()...)
		if out, err := c.CombinedOutput(); err != nil || string(out) != "ok\n" {
			t.Errorf("%s: %v\n%s", source, err, out)
		}
	}
	out, err = exec.CommandContext(t.Context(), "make", "-s", "modules", "FC=no-such-compiler", "BUILD="+t.TempDir()).Output()
	if err != nil || !strings.Contains(string(out), "modules mpi and mpi_f08 are left out: there is no no-such-compiler") {
		t.Errorf("make modules without a Fortran compiler: %v, %q", err, out)
	}
}

// mpif.h is for fixed and for free form.
func TestMPIFortranHeader(t *testing.T) {
	build := testutil.CLibrary(t)
	_, err := exec.LookPath("gfortran")
	testutil.Require(t, err == nil, "there is no gfortran")
	for _, form := range []string{"-ffixed-form", "-ffree-form"} {
		source := filepath.Join(t.TempDir(), "header.f")
		text := "      program header\n      implicit none\n      include 'mpif.h'\n" +
			"      if (MPI_COMM_WORLD .ne. 257) stop 1\n      end\n"
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "gfortran", form, "-Wall", "-Werror", "-Wno-unused-parameter", "-Wno-unused-variable",
			"-fsyntax-only", "-I"+build+"/../mpi/fort/include", source)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", form, err, out)
		}
	}
}

// The library exports the names of the list, and the modules have an interface of each call.
func TestMPIFortranNames(t *testing.T) {
	build := testutil.CLibrary(t)
	list, err := os.ReadFile("mpi/fort/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(string(list))
	out, err := exec.CommandContext(t.Context(), "nm", "-D", "--defined-only", filepath.Join(build, "libmpifort_abi.so.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		have = append(have, strings.Fields(line)[2])
	}
	for _, name := range want {
		if !slices.Contains(have, name) {
			t.Errorf("the library does not export %s", name)
		}
	}
	for _, name := range have {
		if !slices.Contains(want, name) {
			t.Errorf("the library exports %s, which mpi/fort/names.txt does not have", name)
		}
	}
	for module, names := range moduleNames(want) {
		if n := map[string]int{"mpi": 880, "mpi_f08": 856}[module]; len(names) != n {
			t.Errorf("the list has %d calls of module %s, want %d", len(names), module, n)
		}
		text := "use " + module + ", only: "
		for i, name := range names {
			if text += name; i < len(names)-1 {
				text += ", "
			}
			if i%4 == 3 && i < len(names)-1 {
				text += "&\n"
			}
		}
		text += "\nend\n"
		source := filepath.Join(t.TempDir(), module+".f90")
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		fortran(t, source, "-fsyntax-only")
	}
}

// moduleNames are the names of calls that each module has, of the names that the linker sees.
func moduleNames(links []string) map[string][]string {
	all := map[string][]string{}
	for _, link := range links {
		name := strings.TrimSuffix(link, "_")
		switch f08, ok := strings.CutSuffix(name, "_f08"); {
		case !strings.HasPrefix(strings.TrimPrefix(name, "p"), "mpi_") || strings.Contains(name, "mpi_sizeof_"):
		case ok && strings.HasSuffix(f08, "_c"): // The name without _c stands for it, but for two.
			if strings.HasSuffix(f08, "op_create_c") || strings.HasSuffix(f08, "register_datarep_c") {
				all["mpi_f08"] = append(all["mpi_f08"], f08)
			}
		case ok:
			all["mpi_f08"] = append(all["mpi_f08"], f08)
		case strings.HasSuffix(name, "_cptr"): // The name without it stands for it.
		default:
			all["mpi"] = append(all["mpi"], name)
		}
	}
	return all
}

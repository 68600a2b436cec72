package mpilib_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/mpilib"
)

// compile makes a file of a source in C.
func compile(t *testing.T, out, source string, args ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: the test builds programs")
	}
	file := filepath.Join(t.TempDir(), "source.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(cc, append([]string{"-o", out, file}, args...)...)
	if b, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return out
}

// library makes a library that has one function.
func library(t *testing.T, dir, soname string) string {
	return compile(t, filepath.Join(dir, soname), "int MPI_Anything(void) { return 0; }", "-shared", "-fPIC", "-Wl,-soname,"+soname)
}

const program = "int MPI_Anything(void); int main(void) { return MPI_Anything(); }"

func TestExamine(t *testing.T) {
	for soname, want := range map[string]mpilib.ABI{
		"libmpi_abi.so.1": mpilib.Standard, "libmpich.so.12": mpilib.MPICH, "libmpi.so.12": mpilib.MPICH,
		"libmpi.so.40": mpilib.OpenMPI, "libother.so.1": mpilib.None,
	} {
		t.Run(soname, func(t *testing.T) {
			dir := t.TempDir()
			lib := library(t, dir, soname)
			path := compile(t, filepath.Join(dir, "program"), program, lib)
			p, err := mpilib.Examine(t.Context(), path, dir)
			if err != nil || p.ABI != want || len(p.Absent) != 0 || want != mpilib.None && p.MPI != (mpilib.Library{Name: soname, Path: lib}) {
				t.Errorf("%+v, %v: want %v by %s", p, err, want, lib)
			}
			p, err = mpilib.Examine(t.Context(), path) // the system has none of that name and content, or its own
			if err != nil || p.ABI != want || p.MPI.Path == lib {
				t.Errorf("without its folder: %+v, %v", p, err)
			}
		})
	}
}

// A program that needs MPI by another library alone is one of that interface.
func TestExamineThroughALibrary(t *testing.T) {
	dir := t.TempDir()
	lib := library(t, dir, "libmpi_abi.so.1")
	between := compile(t, filepath.Join(dir, "libbetween.so"), "int MPI_Anything(void); int between(void) { return MPI_Anything(); }",
		"-shared", "-fPIC", "-Wl,-soname,libbetween.so", lib)
	path := compile(t, filepath.Join(dir, "program"), "int between(void); int main(void) { return between(); }", between, "-Wl,-rpath-link,"+dir)
	p, err := mpilib.Examine(t.Context(), path, dir)
	if err != nil || p.ABI != mpilib.Standard || p.MPI.Path != lib {
		t.Errorf("%+v, %v", p, err)
	}
	if err := os.Remove(lib); err != nil {
		t.Fatal(err)
	}
	p, err = mpilib.Examine(t.Context(), path, dir)
	if err != nil || p.ABI != mpilib.Standard || p.MPI.Path != "" && filepath.Dir(p.MPI.Path) == dir {
		t.Errorf("after the library was removed: %+v, %v", p, err)
	}
}

func TestExamineRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"script": "#!/bin/sh\n", "empty": "", "short": "\x7fELF", "torn": "\x7fELF\x02\x01\x01" + string(make([]byte, 20)),
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		if p, err := mpilib.Examine(t.Context(), path); !errors.Is(err, mpilib.ErrNoProgram) {
			t.Errorf("%s: %+v, %v: want %v", name, p, err, mpilib.ErrNoProgram)
		}
	}
	if _, err := mpilib.Examine(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
	object := compile(t, filepath.Join(dir, "object.o"), program, "-c")
	if _, err := mpilib.Examine(t.Context(), object); !errors.Is(err, mpilib.ErrNoProgram) {
		t.Errorf("an object file: %v", err)
	}
}

func TestExamineStatic(t *testing.T) {
	path := compile(t, filepath.Join(t.TempDir(), "program"), "int main(void) { return 0; }", "-static")
	if p, err := mpilib.Examine(t.Context(), path); err != nil || !p.Static || p.ABI != mpilib.None {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestOurs(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"bin", "lib", "named"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	dirs := mpilib.Dirs(filepath.Join(root, "bin", "vmmc"), filepath.Join(root, "named"))
	if has := mpilib.Ours(dirs); has != nil {
		t.Errorf("%q have libraries", has)
	}
	base := library(t, root, "libvmmc.so.2")
	for _, file := range []string{"named/libmpich.so.12", "lib/libmpi_abi.so.1", "bin/libmpi.so.40"} {
		compile(t, filepath.Join(root, file), "int unused;", "-shared", "-fPIC", "-Wl,--no-as-needed", base)
	}
	library(t, filepath.Join(root, "bin"), "libmpi.so.12") // another project's
	has := mpilib.Ours(dirs)
	if len(has) != 2 || has[0] != filepath.Join(root, "lib") || has[1] != filepath.Join(root, "named") {
		t.Errorf("%q have libraries, want lib and named", has)
	}
	if got := mpilib.SearchPath("/x:/y", has...); got != has[0]+":"+has[1]+":/x:/y" {
		t.Error(got)
	}
	if got := mpilib.SearchPath("", "/a"); got != "/a" {
		t.Error(got)
	}
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The committed files are those that the tables give.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	names := []string{
		"mpi/include/mpi.h", "mpi/src/calls.c", "mpi/abi/abi.c",
		"mpi/fort/src/calls.c", "mpi/fort/names.txt", "mpi/fort/include/mpif.h",
		"mpi/fort/module/abi_types.F90", "mpi/fort/module/mpi.F90", "mpi/fort/module/mpi_f08.F90",
		"mpich/src/calls.c", "mpich/src/values.h", "mpich/abi/abi.c",
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := generate("..", filepath.Join(dir, "mpi"), filepath.Join(dir, "mpich")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../../c", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("c/%s is not what the tables give: go generate ./internal/mpiabi/mpigen", name)
		}
		for i, line := range strings.Split(string(got), "\n") {
			if len(line) > columns {
				t.Errorf("c/%s:%d has %d columns, want at most %d", name, i+1, len(line), columns)
			}
		}
	}
}

// The table has the 664 calls of MPI 5.0, 26 converters between C and Fortran, and 10 deleted calls.
func TestCallsAreComplete(t *testing.T) {
	calls, err := readCalls("../calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	alone, large, tools := 0, 0, 0
	for _, c := range calls {
		if names[c.name] {
			t.Errorf("%s is twice in calls.txt", c.name)
		}
		names[c.name] = true
		switch {
		case strings.HasPrefix(c.name, "MPI_T_"):
			tools++
		case strings.HasSuffix(c.name, "_c"):
			large++
			if !names[strings.TrimSuffix(c.name, "_c")] {
				t.Errorf("%s has no form without large counts before it", c.name)
			}
		}
		if c.alone {
			alone++
		}
	}
	if len(names) != 700 || large != 161 || tools != 51 || alone != 60 {
		t.Errorf("%d calls, %d with large counts, %d of tools, %d alone in C, want 700, 161, 51, 60",
			len(names), large, tools, alone)
	}
}

func TestParseCall(t *testing.T) {
	c, err := parseCall("go\tint MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup)")
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, p := range c.params {
		values = append(values, p.value())
	}
	if got, want := strings.Join(values, " "), "ADDRESS(group) INTEGER(n) ADDRESS(ranges) ADDRESS(newgroup)"; got != want || c.alone {
		t.Errorf("values are %q, alone is %v, want %q, false", got, c.alone, want)
	}
	if c, err := parseCall("c\tdouble MPI_Wtime(void)"); err != nil || len(c.params) != 0 || !c.alone || c.result != "double" {
		t.Errorf("MPI_Wtime: %+v, %v", c, err)
	}
	for _, line := range []string{"", "int MPI_Init(void)", "go\tint MPI_Init(int *argc", "go\tint Send(void)", "x\tint MPI_Init(void)"} {
		if _, err := parseCall(line); err == nil {
			t.Errorf("%q was taken for a prototype", line)
		}
	}
}

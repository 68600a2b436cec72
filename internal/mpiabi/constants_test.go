//go:build linux

package mpiabi

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// The handles and datatypes that Go knows are those of constants.txt, of which mpi.h is made.
func TestConstants(t *testing.T) {
	b, err := os.ReadFile("constants.txt")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]Handle{}
	for line := range strings.Lines(string(b)) {
		part := strings.Split(strings.TrimSpace(line), "\t")
		if len(part) != 3 || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseInt(part[2], 0, 64)
		if err != nil {
			continue // a text, or a pointer
		}
		values[part[0]] = Handle(v)
		if part[1] != "MPI_Datatype" || part[0] == "MPI_DATATYPE_NULL" {
			continue
		}
		if named[Handle(v)] == nil { // it may have another name: some datatypes have two
			t.Errorf("there is no datatype %#x (%s)", v, part[0])
		}
	}
	for h, d := range named {
		if v, is := values[d.name]; !is || v != h {
			t.Errorf("%s is %#x, in constants.txt %#x", d.name, h, v)
		}
	}
	for name, h := range map[string]Handle{
		"MPI_COMM_NULL": commNull, "MPI_COMM_WORLD": commWorld, "MPI_COMM_SELF": commSelf,
		"MPI_GROUP_NULL": groupNull, "MPI_GROUP_EMPTY": groupEmpty, "MPI_DATATYPE_NULL": datatypeNull,
		"MPI_ERRORS_ARE_FATAL": errorsAreFatal, "MPI_ERRORS_ABORT": errorsAbort, "MPI_ERRORS_RETURN": errorsReturn,
	} {
		if values[name] != h {
			t.Errorf("%s is %#x, in constants.txt %#x", name, h, values[name])
		}
	}
}

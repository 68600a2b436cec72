//go:build linux

package mpiabi

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write missing.txt anew instead of comparing with it")

// missing.txt says which calls have no function. The list only shrinks.
func TestMissing(t *testing.T) {
	var missing []string
	for _, p := range prototypes {
		if _, ok := entries[p.name]; !ok && !p.alone {
			missing = append(missing, p.name)
		} else if ok && p.alone {
			t.Errorf("%s has a function, and calls.txt says that the C library executes it alone", p.name)
		}
	}
	text := strings.Join(missing, "\n") + "\n"
	if *update {
		if err := os.WriteFile("missing.txt", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("missing.txt")
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Error("missing.txt differs from the calls that have no function. Run\n\tgo test ./internal/mpiabi -run TestMissing -update")
	}
}

func TestPrototypes(t *testing.T) {
	for _, c := range []struct {
		name   string
		params int
		arg    int
		want   param
	}{
		{"MPI_Finalize", 0, -1, param{}},
		{"MPI_Send", 6, 1, param{"count", "int", false, 4, false}},
		{"MPI_Send_c", 6, 1, param{"count", "MPI_Count", false, 8, false}},
		{"MPI_Recv", 7, 6, param{"status", "MPI_Status", true, statusSize, true}},
		{"MPI_Init", 2, 1, param{"argv", "char", true, 8, true}},
		{"MPI_Allgatherv", 8, 4, param{"recvcounts", "int", true, 4, false}},
		{"MPI_Allgatherv", 8, 3, param{"recvbuf", "void", true, 1, true}},
		{"MPI_Bcast", 5, 0, param{"buffer", "void", true, 1, false}},
		{"MPI_Allgatherv_c", 8, 4, param{"recvcounts", "MPI_Count", true, 8, false}},
		{"MPI_Comm_dup", 2, 1, param{"newcomm", "MPI_Comm", true, 8, true}},
		{"MPI_Group_range_incl", 4, 2, param{"ranges", "int", true, 4, true}},
	} {
		p := prototypes[Number(c.name)]
		if p.name != c.name || len(p.params) != c.params {
			t.Errorf("%s: got %s with %d arguments, want %d", c.name, p.name, len(p.params), c.params)
			continue
		}
		if c.arg >= 0 && p.params[c.arg] != c.want {
			t.Errorf("%s: argument %d is %+v, want %+v", c.name, c.arg, p.params[c.arg], c.want)
		}
	}
	for _, line := range []string{"", "int MPI_X(void)", "c\tMPI_X(void)", "go\tint MPI_X"} {
		if p, err := parsePrototype(line); err == nil {
			t.Errorf("%q is read as %+v, want an error", line, p)
		}
	}
	if n := Number("MPI_No_such_call"); n != -1 {
		t.Errorf("a call that is not there has number %d, want -1", n)
	}
}

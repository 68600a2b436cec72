package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// All calls have a Fortran binding but those of tools, the converters and the deleted ones.
func TestFortranCalls(t *testing.T) {
	calls, err := fortranCalls("..")
	if err != nil {
		t.Fatal(err)
	}
	large, old := 0, 0
	for i := range calls {
		c := &calls[i]
		if strings.HasPrefix(c.name, "MPI_T_") || converter(c.name) {
			t.Errorf("%s has a Fortran binding", c.name)
		}
		if c.large {
			large++
		}
		if c.old {
			old++
		}
	}
	if len(calls) != 591 || large != 161 || old != 5 {
		t.Errorf("%d calls have Fortran bindings, %d of them with large counts, %d not in mpi_f08, want 591, 161, 5",
			len(calls), large, old)
	}
}

// A function converts what the two languages have differently.
func TestFortranDefinition(t *testing.T) {
	calls, err := fortranCalls("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"MPI_Send":                      {"CALL(Send)(BUFFER(buf), *count, PMPI_Type_fromint(*datatype), *dest, *tag,", "SAME(send);"},
		"MPI_Send_c":                    {"API void F08(send_c)(", "const MPI_Count *count"},
		"MPI_Wait":                      {"c_request = PMPI_Request_fromint(*request)", "STATUS(status)", "*request = PMPI_Request_toint(c_request);"},
		"MPI_Cancel":                    {"const int *request"},
		"MPI_Waitany":                   {"*index = mpif_index(c_index);"},
		"MPI_Testsome":                  {"mpif_indexes(array_of_indices, *outcount);"},
		"MPI_Comm_set_name":             {"char *c_comm_name = mpif_text(comm_name, comm_name_len);", "free(c_comm_name);"},
		"MPI_Info_set":                  {"mpif_word(key, key_len)"},
		"MPI_Alltoallw":                 {"int n_sendtypes = mpif_senders(sendbuf,*comm);", "int n_recvtypes = mpif_peers(*comm);"},
		"MPI_Ialltoallw":                {"mpif_types(sendtypes, mpif_senders(sendbuf,*comm));", "mpif_types(recvtypes, mpif_peers(*comm));"},
		"MPI_Neighbor_alltoallw_init_c": {"mpif_types(sendtypes, mpif_targets(*comm));"},
		"MPI_Type_commit":               {"*datatype = PMPI_Type_toint(c_datatype);"},
	} {
		text := ""
		for i := range calls {
			if calls[i].name == name {
				text = calls[i].definition()
			}
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("the function of %s has no %q:\n%s", name, w, text)
			}
		}
	}
}

// A line of fortran.txt that fits nothing, or says nothing, is an error.
func TestFortranExceptions(t *testing.T) {
	table, err := os.ReadFile("../fortran.txt")
	if err != nil {
		t.Fatal(err)
	}
	prototypes, err := os.ReadFile("../calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"MPI_Send\t-\tquick", "MPI_Send\tbuf\tquick", "MPI_Send\tnothing\tin", "MPI_Send\tbuf in", "MPI_Nothing\t-\thand",
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"calls.txt": string(prototypes), "fortran.txt": line + "\n" + string(table)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := fortranCalls(dir); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

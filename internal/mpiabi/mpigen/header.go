package main

import (
	"fmt"
	"os"
	"strings"
)

// constant is a line of constants.txt.
type constant struct {
	name, typ, value string
}

func readConstants(path string) ([]constant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []constant
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 3 || !strings.HasPrefix(f[0], "MPI_") {
			return nil, fmt.Errorf("%s, line %d: %q is no name, type and value with a tab between", path, i+1, line)
		}
		all = append(all, constant{f[0], f[1], f[2]})
	}
	return all, nil
}

// text is the constant's value in C.
func (c *constant) text() string {
	if c.typ != "int" {
		return "((" + c.typ + ")" + c.value + ")"
	}
	if strings.HasPrefix(c.value, "-") {
		return "(" + c.value + ")"
	}
	return c.value
}

// handles are the types of handles: pointers to structures that no program sees.
var handles = []string{
	"Comm", "Datatype", "Errhandler", "File", "Group", "Info", "Message", "Op", "Request", "Session", "Win",
	"T_enum", "T_cvar_handle", "T_pvar_handle", "T_pvar_session", "T_event_registration", "T_event_instance",
}

// callbacks are the types of functions that a program gives to a call.
var callbacks = []string{
	"void MPI_User_function(void *, void *, int *, MPI_Datatype *)",
	"void MPI_User_function_c(void *, void *, MPI_Count *, MPI_Datatype *)",
	"int MPI_Grequest_query_function(void *, MPI_Status *)",
	"int MPI_Grequest_free_function(void *)",
	"int MPI_Grequest_cancel_function(void *, int)",
	"int MPI_Copy_function(MPI_Comm, int, void *, void *, void *, int *)",
	"int MPI_Delete_function(MPI_Comm, int, void *, void *)",
	"int MPI_Comm_copy_attr_function(MPI_Comm, int, void *, void *, void *, int *)",
	"int MPI_Comm_delete_attr_function(MPI_Comm, int, void *, void *)",
	"int MPI_Type_copy_attr_function(MPI_Datatype, int, void *, void *, void *, int *)",
	"int MPI_Type_delete_attr_function(MPI_Datatype, int, void *, void *)",
	"int MPI_Win_copy_attr_function(MPI_Win, int, void *, void *, void *, int *)",
	"int MPI_Win_delete_attr_function(MPI_Win, int, void *, void *)",
	"int MPI_Datarep_extent_function(MPI_Datatype, MPI_Aint *, void *)",
	"int MPI_Datarep_conversion_function(void *, MPI_Datatype, int, void *, MPI_Offset, void *)",
	"int MPI_Datarep_conversion_function_c(void *, MPI_Datatype, MPI_Count, void *, MPI_Offset, void *)",
	"void MPI_Comm_errhandler_function(MPI_Comm *, int *, ...)",
	"void MPI_File_errhandler_function(MPI_File *, int *, ...)",
	"void MPI_Win_errhandler_function(MPI_Win *, int *, ...)",
	"void MPI_Session_errhandler_function(MPI_Session *, int *, ...)",
	"void MPI_T_event_cb_function(MPI_T_event_instance, MPI_T_event_registration, MPI_T_cb_safety, void *)",
	"void MPI_T_event_free_cb_function(MPI_T_event_registration, MPI_T_cb_safety, void *)",
	"void MPI_T_event_dropped_cb_function(MPI_Count, MPI_T_event_registration, int, MPI_T_cb_safety, void *)",
}

// enumerations are the two types of the tools interface whose constants C declares as enumerators.
var enumerations = map[string]string{"MPI_T_CB_": "MPI_T_cb_safety", "MPI_T_SOURCE_": "MPI_T_source_order"}

func header(calls []call, constants []constant) string {
	var b strings.Builder
	b.WriteString("/* MPI 5.0 in C: the declarations of the standard's ABI, version 1.0. */\n" + notice +
		"#ifndef MPI_H\n#define MPI_H\n\n#include <stdint.h>\n\n" +
		"#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n" +
		"typedef intptr_t MPI_Aint;\ntypedef int64_t MPI_Offset;\ntypedef int64_t MPI_Count;\ntypedef int MPI_Fint;\n\n" +
		"/* MPI_internal is the library's. */\n" +
		"typedef struct MPI_Status {\n    int MPI_SOURCE;\n    int MPI_TAG;\n    int MPI_ERROR;\n" +
		"    int MPI_internal[5];\n} MPI_Status;\ntypedef MPI_Status MPI_F08_Status;\n\n")
	for _, h := range handles {
		fmt.Fprintf(&b, "typedef struct MPI_ABI_%s *MPI_%s;\n", h, h)
	}
	b.WriteString("\n")
	for _, prefix := range []string{"MPI_T_CB_", "MPI_T_SOURCE_"} {
		var words []string
		for _, c := range constants {
			if strings.HasPrefix(c.name, prefix) {
				words = append(words, c.name+" = "+c.value)
			}
		}
		t := enumerations[prefix]
		fmt.Fprintf(&b, "typedef enum %s {\n    %s\n} %s;\n", t, strings.Join(words, ",\n    "), t)
	}
	b.WriteString("\n")
	for _, c := range callbacks {
		head, list, _ := strings.Cut(strings.TrimSuffix(c, ")"), "(")
		result, name, _ := strings.Cut(head, " ")
		b.WriteString(wrap("typedef "+result+" "+name+"(", strings.Split(list, ", "), ");\n"))
	}
	for _, h := range []string{"Comm", "File", "Win", "Session"} {
		fmt.Fprintf(&b, "typedef MPI_%s_errhandler_function MPI_%s_errhandler_fn;\n", h, h)
	}
	b.WriteString("\n")
	for _, c := range constants {
		if !c.enumerator() {
			fmt.Fprintf(&b, "#define %s %s\n", c.name, c.text())
		}
	}
	for _, prefix := range []string{"", "P"} {
		b.WriteString("\n")
		for _, c := range calls {
			b.WriteString(c.declaration("", prefix, ";\n"))
		}
	}
	b.WriteString("\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
	return b.String()
}

func (c *constant) enumerator() bool {
	for prefix := range enumerations {
		if strings.HasPrefix(c.name, prefix) {
			return true
		}
	}
	return false
}

// printer is a program that prints what a header mpi.h lays down. It may be compiled with any
// implementation's header of the ABI.
func printer(constants []constant) string {
	var b strings.Builder
	b.WriteString("/* Prints what mpi.h lays down: sizes, offsets, constants. A part of abi.txt. */\n" + notice +
		`#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(t) printf("size %s %zu align %zu\n", #t, sizeof(t), _Alignof(t))
#define PLACE(t, f) printf("offset %s.%s %zu\n", #t, #f, offsetof(t, f))
#define VALUE(v) printf("value %s %ld\n", #v, (long)(v))

int main(void) {
`)
	for _, t := range []string{"Aint", "Count", "Offset", "Fint", "Status", "T_cb_safety", "T_source_order"} {
		fmt.Fprintf(&b, "    SIZE(MPI_%s);\n", t)
	}
	for _, t := range handles {
		fmt.Fprintf(&b, "    SIZE(MPI_%s);\n", t)
	}
	for _, f := range []string{"MPI_SOURCE", "MPI_TAG", "MPI_ERROR", "MPI_internal"} {
		fmt.Fprintf(&b, "    PLACE(MPI_Status, %s);\n", f)
	}
	for _, c := range constants {
		fmt.Fprintf(&b, "    VALUE(%s);\n", c.name)
	}
	b.WriteString("    return 0;\n}\n")
	return b.String()
}

//go:build linux

package mpiabi

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func init() { wrongCalls = append(wrongCalls, wrongErrors) }

func wrongErrors(t *testing.T, r *rank) []wrongCall {
	out := place(r.cMemory, make([]int64, 4)...)
	text := place(r.cMemory, []byte("text\x00")...)
	long := place(r.cMemory, append([]byte(strings.Repeat("x", maxErrorString)), 0)...)
	page := forbidden(t)
	null := place(r.cMemory, errhandlerNull)
	foreign := r.handles.add(&datatype{name: "foreign", size: 4, extent: 4})
	rows := []wrongCall{
		{"MPI_Error_class", Args{neg(-1), out}, errArg},
		{"MPI_Error_class", Args{63, out}, errArg},
		{"MPI_Error_class", Args{5, 0}, errArg},
		{"MPI_Error_string", Args{uint64(lastCode) + 900, out, out}, errArg},
		{"MPI_Error_string", Args{5, 0, out}, errArg},
		{"MPI_Error_string", Args{5, page, out}, errBuffer},
		{"MPI_Add_error_class", Args{0}, errArg},
		{"MPI_Add_error_class", Args{page}, errBuffer},
		{"MPI_Add_error_code", Args{900, out}, errArg},
		{"MPI_Add_error_code", Args{5, 0}, errArg},
		{"MPI_Add_error_string", Args{5, text}, errArg},
		{"MPI_Add_error_string", Args{5, 0}, errArg},
		{"MPI_Add_error_string", Args{5, page}, errBuffer},
		{"MPI_Add_error_string", Args{5, long}, errArg},
		{"MPI_Remove_error_class", Args{5}, errArg},
		{"MPI_Remove_error_code", Args{5}, errArg},
		{"MPI_Remove_error_string", Args{5}, errArg},
		{"MPI_Errhandler_free", Args{0}, errArg},
		{"MPI_Errhandler_free", Args{null}, errHandler},
		{"MPI_Errhandler_free", Args{place(r.cMemory, foreign)}, errHandler},
		{"MPI_Win_set_errhandler", Args{uint64(foreign), uint64(errorsReturn)}, errWin},
		{"MPI_Win_get_errhandler", Args{uint64(foreign), out}, errWin},
		{"MPI_Win_call_errhandler", Args{0, 5}, errWin},
		{"MPI_File_set_errhandler", Args{uint64(foreign), uint64(errorsReturn)}, errFile},
		{"MPI_File_set_errhandler", Args{uint64(fileNull), 0}, errHandler},
		{"MPI_File_get_errhandler", Args{uint64(foreign), out}, errFile},
		{"MPI_File_call_errhandler", Args{uint64(fileNull), 900}, errArg},
		{"MPI_Comm_call_errhandler", Args{world, 900}, errArg},
		{"MPI_Comm_call_errhandler", Args{uint64(foreign), 5}, errComm},
	}
	for _, call := range []string{"MPI_Comm_create_errhandler", "MPI_Win_create_errhandler", "MPI_File_create_errhandler", "MPI_Session_create_errhandler", "MPI_Errhandler_create"} {
		rows = append(rows, wrongCall{call, Args{0, out}, errArg}, wrongCall{call, Args{1, 0}, errArg}, wrongCall{call, Args{1, page}, errBuffer})
	}
	r.must("MPI_Win_create_errhandler", 0x1234, out)
	for _, call := range []string{"MPI_Comm_set_errhandler", "MPI_Errhandler_set"} {
		rows = append(rows,
			wrongCall{call, Args{world, uint64(errhandlerNull)}, errHandler},
			wrongCall{call, Args{world, uint64(foreign)}, errHandler},
			wrongCall{call, Args{world, uint64(*at[Handle](out))}, errHandler},
			wrongCall{call, Args{uint64(commNull), uint64(errorsReturn)}, errComm})
	}
	for _, call := range []string{"MPI_Comm_get_errhandler", "MPI_Errhandler_get"} {
		rows = append(rows, wrongCall{call, Args{uint64(foreign), out}, errComm}, wrongCall{call, Args{world, 0}, errArg})
	}
	return rows
}

// The texts are those of the numbers of constants.txt.
func TestErrorStrings(t *testing.T) {
	r := newRank(t) // The calls work before MPI_Init.
	class, length := place(r.cMemory, int32(0)), place(r.cMemory, int32(0))
	buf := place(r.cMemory, make([]byte, maxErrorString)...)
	for code, want := range map[int32]string{
		errSuccess: "no error", errTag: "tag", errTruncate: "longer", errInStatus: "in the status",
		errInfoValue: "value", errIO: "input or output", errWin: "invalid window", errHandler: "error handler", 62: "binary interfaces",
	} {
		r.must("MPI_Error_class", uint64(code), class)
		r.must("MPI_Error_string", uint64(code), buf, length)
		text := string(slice[byte](buf, int(*at[int32](length))))
		if *at[int32](class) != code || !strings.Contains(text, want) || *at[byte](buf + uint64(len(text))) != 0 {
			t.Errorf("code %d: class %d, %q, want the code itself, and a text with %q", code, *at[int32](class), text, want)
		}
	}
}

// A program has classes and codes of its own, and removes them.
func TestAddError(t *testing.T) {
	r := newRank(t)
	r.self.handler.Store(uint64(errorsReturn))
	out := place(r.cMemory, make([]int32, 4)...)
	text := place(r.cMemory, []byte("out of cheese\x00")...)
	buf := place(r.cMemory, make([]byte, maxErrorString)...)
	r.must("MPI_Add_error_class", out)
	class := uint64(*at[int32](out))
	r.must("MPI_Add_error_code", class, out)
	code := uint64(*at[int32](out))
	if int32(class) <= lastCode || code == class {
		t.Errorf("class %d, code %d, want different ones above %d", class, code, lastCode)
	}
	r.must("MPI_Add_error_code", uint64(errTag), out+12)
	r.must("MPI_Error_class", uint64(*at[int32](out + 12)), out+12)
	r.must("MPI_Error_class", code, out)
	if v := slice[int32](out, 4); uint64(v[0]) != class || v[3] != errTag {
		t.Errorf("classes %d and %d, want %d and %d", v[0], v[3], class, errTag)
	}
	for _, want := range []string{"", "out of cheese", ""} {
		if want != "" {
			r.must("MPI_Add_error_string", code, text)
		}
		r.must("MPI_Error_string", code, buf, out)
		if got := string(slice[byte](buf, int(*at[int32](out)))); got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
		if want != "" {
			r.must("MPI_Remove_error_string", code)
		}
	}
	for _, step := range []struct {
		call string
		arg  uint64
		want int32
	}{
		{"MPI_Remove_error_class", class, errArg}, // It has a code.
		{"MPI_Remove_error_class", code, errArg},
		{"MPI_Remove_error_code", class, errArg},
		{"MPI_Remove_error_code", code, errSuccess},
		{"MPI_Remove_error_code", code, errArg},
		{"MPI_Remove_error_class", class, errSuccess},
	} {
		if got := r.call(step.call, step.arg); got != step.want {
			t.Errorf("%s(%d): code %d, want %d", step.call, step.arg, got, step.want)
		}
	}
}

func TestLastUsedCode(t *testing.T) {
	r := job(t, 1)[0]
	out := place(r.cMemory, int64(0), 0, 0)
	for range 2 {
		r.must("MPI_Add_error_class", out)
		r.must("MPI_Comm_get_attr", world, uint64(keyLastUsedCode), out+8, out+16)
		if v := *at[int32](*at[uint64](out + 8)); v != *at[int32](out) {
			t.Errorf("MPI_LASTUSEDCODE is %d, want %d", v, *at[int32](out))
		}
	}
}

// A call returns the code that its error handler leaves.
func TestErrhandlerChangesCode(t *testing.T) {
	r := job(t, 1)[0]
	left := errOther
	r.config.Callback = func(_ uint64, args ...uint64) uint64 {
		*at[int32](args[1]) = left
		return 0
	}
	h := place(r.cMemory, Handle(0))
	r.must("MPI_Comm_create_errhandler", 0x1234, h)
	r.must("MPI_Comm_set_errhandler", world, *at[uint64](h))
	for _, left = range []int32{errOther, errSuccess} {
		if code := r.call("MPI_Send", 0, 0, typeInt, 7, 0, world); code != left {
			t.Errorf("code %d, want %d of the error handler", code, left)
		}
	}
}

// A communicator keeps its error handler when the program has freed the handle, and no longer.
func TestErrhandler(t *testing.T) {
	r := job(t, 1)[0]
	var calls []string
	r.config.Callback = func(function uint64, args ...uint64) uint64 {
		calls = append(calls, fmt.Sprintf("%#x: %#x, %d", function, uint64(*at[Handle](args[0])), *at[int32](args[1])))
		return 0
	}
	h := place(r.cMemory, Handle(0), Handle(0), Handle(0))
	dup := place(r.cMemory, Handle(0))
	r.must("MPI_Comm_create_errhandler", 0x1234, h)
	first := *at[Handle](h)
	r.must("MPI_Comm_set_errhandler", world, uint64(first))
	r.must("MPI_Comm_dup", world, dup)
	r.must("MPI_Errhandler_free", h)
	if v := *at[Handle](h); v != errhandlerNull {
		t.Errorf("the handle is %#x, want MPI_ERRHANDLER_NULL", v)
	}
	r.self.handler.Store(uint64(errorsReturn))
	if code := r.call("MPI_Comm_set_errhandler", uint64(commSelf), uint64(first)); code != errHandler {
		t.Errorf("a freed error handler is set: code %d, want %d", code, errHandler)
	}
	r.must("MPI_Comm_call_errhandler", *at[uint64](dup), uint64(errTag))
	r.call("MPI_Barrier", 0) // no communicator
	r.call("MPI_Send", 0, 0, typeInt, 7, 0, world)
	want := []string{fmt.Sprintf("0x1234: %#x, %d", *at[uint64](dup), errTag), fmt.Sprintf("0x1234: 0x101, %d", errRank)}
	if fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	r.must("MPI_Comm_get_errhandler", world, h+8)
	if v := *at[Handle](h + 8); v != first {
		t.Errorf("MPI_Comm_get_errhandler gives %#x, want %#x", v, first)
	}
	r.must("MPI_Comm_set_errhandler", world, uint64(errorsReturn))
	r.must("MPI_Comm_free", dup)
	r.must("MPI_Comm_set_errhandler", world, uint64(first)) // The program holds it anew.
	r.must("MPI_Comm_set_errhandler", world, uint64(errorsReturn))
	r.must("MPI_Errhandler_free", h+8)
	if _, ok := lookup[*userHandler](&r.handles, first); ok {
		t.Error("an error handler stays that neither the program nor a communicator has")
	}
	r.must("MPI_Errhandler_get", world, h+16)
	if v := *at[Handle](h + 16); v != errorsReturn {
		t.Errorf("MPI_Errhandler_get gives %#x, want MPI_ERRORS_RETURN", v)
	}
	r.must("MPI_Errhandler_free", h+16)
	r.must("MPI_Errhandler_set", world, uint64(errorsAreFatal))
	r.must("MPI_Comm_call_errhandler", world, uint64(errTag))
	if *r.status != 1 || !strings.Contains(r.stderr.String(), "MPI_Comm_call_errhandler: invalid tag") {
		t.Errorf("the job ends with status %d, %q", *r.status, r.stderr)
	}
	r.ctx = context.Background() // The rank has not ended, so it finalizes for the test.
}

// Windows, and files that are opened later, have error handlers of their own.
func TestErrhandlerOfWinAndFile(t *testing.T) {
	r := job(t, 1)[0]
	var calls []string
	r.config.Callback = func(function uint64, args ...uint64) uint64 {
		calls = append(calls, fmt.Sprintf("%#x: %#x, %d", function, uint64(*at[Handle](args[0])), *at[int32](args[1])))
		return 0
	}
	h, win, mem := place(r.cMemory, Handle(0), Handle(0)), place(r.cMemory, Handle(0)), place(r.cMemory, int64(0))
	r.must("MPI_Win_create_errhandler", 0x11, h)
	r.must("MPI_File_create_errhandler", 0x22, h+8)
	r.must("MPI_Win_create", mem, 8, 1, uint64(infoNull), world, win)
	r.must("MPI_Win_set_errhandler", *at[uint64](win), *at[uint64](h))
	r.must("MPI_File_set_errhandler", uint64(fileNull), *at[uint64](h + 8))
	r.must("MPI_Errhandler_free", h)
	r.must("MPI_Errhandler_free", h+8)
	r.must("MPI_Win_call_errhandler", *at[uint64](win), uint64(errRMASync))
	if code := r.call("MPI_Win_get_group", *at[uint64](win), 0); code != errArg {
		t.Errorf("MPI_Win_get_group: code %d, want %d", code, errArg)
	}
	r.must("MPI_File_call_errhandler", uint64(fileNull), uint64(errIO))
	want := []string{
		fmt.Sprintf("0x11: %#x, %d", *at[uint64](win), errRMASync),
		fmt.Sprintf("0x11: %#x, %d", *at[uint64](win), errArg),
		fmt.Sprintf("0x22: 0x118, %d", errIO),
	}
	if fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	r.must("MPI_Win_get_errhandler", *at[uint64](win), h)
	r.must("MPI_File_get_errhandler", uint64(fileNull), h+8)
	for k, function := range []uint64{0x11, 0x22} {
		if user, ok := lookup[*userHandler](&r.handles, slice[Handle](h, 2)[k]); !ok || user.function != function {
			t.Errorf("handler %d is %v, want function %#x", k, user, function)
		}
	}
	r.must("MPI_Errhandler_free", h)
	r.must("MPI_Errhandler_free", h+8)
	r.must("MPI_Win_free", win)
}

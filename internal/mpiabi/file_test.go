//go:build linux

package mpiabi

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// text places a C string.
func (r *rank) text(s string) uint64 { return place(r.cMemory, []byte(s+"\x00")...) }

// open opens a file in a directory.
func (r *rank) open(dir, name string, mode int) uint64 {
	r.t.Helper()
	return r.made("MPI_File_open", uint64(commWorld), r.text(filepath.Join(dir, name)), uint64(mode), 0x130)
}

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		const readWrite = modeCreate | modeReadWrite
		dir := t.TempDir()
		world, null, page := uint64(commWorld), uint64(fileNull), forbidden(t)
		out := place(r.cMemory, int64(0), int64(0))
		text := place(r.cMemory, make([]byte, maxDatarep)...)
		mem := place(r.cMemory, make([]int32, 4)...)
		name, none, native, external := r.text(filepath.Join(dir, "a")), r.text(filepath.Join(dir, "none")), r.text("native"), r.text("external32")
		f := r.open(dir, "b", readWrite)
		readOnly := r.open(dir, "b", modeReadOnly)
		t.Cleanup(func() {
			for _, h := range []uint64{f, readOnly} {
				r.freeHandle("MPI_File_close", h)
			}
		})
		rows := []wrongCall{
			{"MPI_File_open", Args{uint64(commNull), name, readWrite, 0x130, out}, errComm},
			{"MPI_File_open", Args{world, 0, readWrite, 0x130, out}, errArg},
			{"MPI_File_open", Args{world, page, readWrite, 0x130, out}, errBuffer},
			{"MPI_File_open", Args{world, name, readWrite, 0x130, 0}, errArg},
			{"MPI_File_open", Args{world, name, 0, 0x130, out}, errAmode},
			{"MPI_File_open", Args{world, name, readWrite | 1<<20, 0x130, out}, errAmode},
			{"MPI_File_open", Args{world, none, modeReadOnly, 0x130, out}, errNoFile},
			{"MPI_File_open", Args{world, r.text(dir), modeReadOnly, 0x130, out}, errBadFile},
			{"MPI_File_delete", Args{none, 0x130}, errNoFile},
			{"MPI_File_delete", Args{0, 0x130}, errArg},
			{"MPI_File_close", Args{0}, errArg},
			{"MPI_File_close", Args{place(r.cMemory, fileNull)}, errFile},
			{"MPI_File_get_amode", Args{null, out}, errFile},
			{"MPI_File_get_amode", Args{f, 0}, errArg},
			{"MPI_File_get_group", Args{world, out}, errFile},
			{"MPI_File_get_size", Args{null, out}, errFile},
			{"MPI_File_get_size", Args{f, page}, errBuffer},
			{"MPI_File_set_size", Args{f, neg(-1)}, errArg},
			{"MPI_File_set_size", Args{readOnly, 1}, errReadOnly},
			{"MPI_File_preallocate", Args{f, neg(-1)}, errArg},
			{"MPI_File_sync", Args{null}, errFile},
			{"MPI_File_set_atomicity", Args{null, 1}, errFile},
			{"MPI_File_get_atomicity", Args{f, 0}, errArg},
			{"MPI_File_set_view", Args{null, 0, 0x247, 0x247, native, 0x130}, errFile},
			{"MPI_File_set_view", Args{f, neg(-2), 0x247, 0x247, native, 0x130}, errArg},
			{"MPI_File_set_view", Args{f, neg(displacementCurrent), 0x247, 0x247, native, 0x130}, errArg},
			{"MPI_File_set_view", Args{f, 0, 0, 0x247, native, 0x130}, errType},
			{"MPI_File_set_view", Args{f, 0, 0x209, 0x247, native, 0x130}, errType},
			{"MPI_File_set_view", Args{f, 0, 0x247, 0x247, 0, 0x130}, errArg},
			{"MPI_File_set_view", Args{f, 0, 0x247, 0x247, external, 0x130}, errDatarep},
			{"MPI_File_get_view", Args{null, out, out, out, text}, errFile},
			{"MPI_File_get_view", Args{f, 0, out, out, text}, errArg},
			{"MPI_File_get_view", Args{f, out, 0, out, text}, errArg},
			{"MPI_File_get_view", Args{f, out, out, out, page}, errBuffer},
			{"MPI_File_get_byte_offset", Args{f, neg(-1), out}, errArg},
			{"MPI_File_get_byte_offset", Args{null, 0, out}, errFile},
			{"MPI_File_get_type_extent", Args{f, 0, out}, errType},
			{"MPI_File_get_type_extent_c", Args{null, 0x209, out}, errFile},
			{"MPI_File_seek", Args{f, 0, 5}, errArg},
			{"MPI_File_seek", Args{f, neg(-1), seekSet}, errArg},
			{"MPI_File_seek", Args{null, 0, seekSet}, errFile},
			{"MPI_File_seek_shared", Args{f, 0, 5}, errArg},
			{"MPI_File_seek_shared", Args{f, neg(-1), seekSet}, errArg},
			{"MPI_File_get_position", Args{f, 0}, errArg},
			{"MPI_File_get_position_shared", Args{null, out}, errFile},
		}
		// Each read and write: a number of arguments, of which the last one is where the result goes.
		for call := range entries {
			verb, ok := strings.CutPrefix(call, "MPI_File_")
			if !ok || strings.HasSuffix(call, "_c") || !strings.Contains(verb, "read") && !strings.Contains(verb, "write") {
				continue
			}
			if strings.HasSuffix(call, "_end") {
				rows = append(rows, wrongCall{call, Args{f, mem, 0}, errOther}, wrongCall{call, Args{null, mem, 0}, errFile})
				continue
			}
			offset := Args{}
			if strings.Contains(verb, "_at") {
				offset = Args{0}
			}
			result := Args{out}
			switch {
			case strings.HasSuffix(call, "_begin"):
				result = nil
			case verb[0] != 'i':
				result = Args{0}
			}
			row := func(want int32, f uint64, offset Args, buf, count, typ uint64) {
				rows = append(rows, wrongCall{call, slices.Concat(Args{f}, offset, Args{buf, count, typ}, result), want})
			}
			row(errFile, null, offset, mem, 1, 0x209)
			row(errBuffer, f, offset, 0, 1, 0x209)
			row(errBuffer, f, offset, page, 1, 0x209)
			row(errCount, f, offset, mem, neg(-1), 0x209)
			row(errType, f, offset, mem, 1, 0)
			if len(offset) > 0 && len(result) > 0 && !strings.Contains(verb, "all") {
				row(errArg, f, Args{neg(-1)}, mem, 1, 0x209)
			}
			if strings.Contains(verb, "write") && verb[0] != 'i' && len(result) > 0 {
				row(errReadOnly, readOnly, offset, mem, 1, 0x209)
			}
		}
		return rows
	})
}

func TestFile(t *testing.T) {
	rs := job(t, 3)
	dir := t.TempDir()
	each(rs, func(i int, r *rank) {
		const intType = 0x209
		me := int32(i)
		f := r.open(dir, "values", modeCreate|modeReadWrite)
		r.same("the mode", r.results(1, "MPI_File_get_amode", f), modeCreate|modeReadWrite)
		r.same("the group's size", r.results(1, "MPI_Group_size", r.made("MPI_File_get_group", f)), 3)
		src := place(r.cMemory, 10*me, 10*me+1)
		st := place(r.cMemory, make([]int32, 8)...)
		bytes := func(want int32) {
			t.Helper()
			if got := slice[int32](st, 8)[statusBytesLow]; got != want {
				t.Errorf("the status has %d bytes, want %d", got, want)
			}
		}
		r.must("MPI_File_write_at_all", f, uint64(8*i), src, 2, intType, st)
		bytes(8)
		r.must("MPI_Barrier", uint64(commWorld)) // The call need not wait for what other ranks write.
		out := place(r.cMemory, int64(0))
		r.must("MPI_File_get_size", f, out)
		if n := *at[int64](out); n != 24 {
			t.Errorf("the file has %d bytes, want 24", n)
		}
		dst := place(r.cMemory, make([]int32, 8)...)
		r.must("MPI_File_read_at", f, 4, dst, 8, intType, st) // to the end of the file
		bytes(20)
		r.same("MPI_File_read_at", slice[int32](dst, 5), 1, 10, 11, 20, 21)
		// Each rank sees every third value, and from its own one on.
		whole := r.made("MPI_Type_create_resized", intType, 0, 12)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(whole)))
		r.must("MPI_File_set_view", f, uint64(4*i), intType, whole, r.text("native"), 0x130)
		r.must("MPI_File_get_byte_offset", f, 2, out)
		if n := *at[int64](out); n != int64(24+4*i) {
			t.Errorf("item 2 of the view is at byte %d, want %d", n, 24+4*i)
		}
		r.must("MPI_File_read_all", f, dst, 2, intType, st)
		all := []int32{0, 1, 10, 11, 20, 21}
		r.same("MPI_File_read_all", slice[int32](dst, 2), all[i], all[i+3])
		r.must("MPI_File_get_position", f, out)
		if n := *at[int64](out); n != 2 {
			t.Errorf("the file pointer is %d, want 2", n)
		}
		r.must("MPI_File_seek", f, neg(-1), seekCurrent)
		req := place(r.cMemory, Handle(0))
		r.must("MPI_File_iread", f, dst+8, 1, intType, req)
		r.must("MPI_Wait", req, st)
		bytes(4)
		r.same("MPI_File_iread", slice[int32](dst+8, 1), all[i+3])
		// A split collective into every second value.
		even := r.made("MPI_Type_vector", 2, 1, 2, intType)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(even)))
		clear(slice[int32](dst, 8))
		r.must("MPI_File_read_at_all_begin", f, 0, dst, 1, even)
		r.self.handler.Store(uint64(errorsReturn))
		if code := r.call("MPI_File_read_all_end", f, dst, st); code != errOther {
			t.Errorf("another end: code %d, want %d", code, errOther)
		}
		r.must("MPI_File_read_at_all_end", f, dst, st)
		bytes(8)
		r.same("the split read", slice[int32](dst, 4), all[i], 0, all[i+3], 0)
		// The view tells what it was given.
		types := place(r.cMemory, Handle(0), Handle(0))
		r.must("MPI_File_get_view", f, out, types, types+8, r.text("123456789"))
		if h := *at[Handle](types); h != intType || *at[int64](out) != int64(4*i) {
			t.Errorf("the view has elementary type %#x and begins at %d", h, *at[int64](out))
		}
		r.same("its items' size", r.results(1, "MPI_Type_size", uint64(*at[Handle](types + 8))), 4)
		r.must("MPI_File_get_type_extent", f, whole, out)
		if n := *at[int64](out); n != 12 {
			t.Errorf("the items' extent is %d, want 12", n)
		}
		// Shared pointers.
		r.must("MPI_File_set_view", f, 0, 0x247, 0x247, r.text("native"), 0x130)
		r.must("MPI_File_seek_shared", f, 0, seekEnd)
		r.must("MPI_File_write_ordered", f, src, 1, intType, st)
		r.must("MPI_File_get_position_shared", f, out)
		r.must("MPI_Barrier", uint64(commWorld))
		r.must("MPI_File_set_atomicity", f, 1)
		r.same("MPI_File_get_atomicity", r.results(1, "MPI_File_get_atomicity", f), 1)
		r.must("MPI_File_read_at", f, 24, dst, 3, intType, st)
		r.same("what is written in order", slice[int32](dst, 3), 0, 10, 20)
		r.must("MPI_File_sync", f)
		r.must("MPI_File_preallocate", f, 40)
		r.must("MPI_File_set_size", f, 36)
		if h := r.freeHandle("MPI_File_close", f); h != fileNull {
			t.Errorf("a closed file's handle is %#x", h)
		}
		r.must("MPI_Barrier", uint64(commWorld))
		if i == 0 {
			if b, err := os.ReadFile(filepath.Join(dir, "values")); err != nil || len(b) != 36 {
				t.Errorf("the file has %d bytes, %v, want 36", len(b), err)
			}
			r.must("MPI_File_delete", r.text(filepath.Join(dir, "values")), 0x130)
			if _, err := os.Stat(filepath.Join(dir, "values")); !os.IsNotExist(err) {
				t.Errorf("the file is deleted: %v", err)
			}
		}
	})
}

// A file's errors are returned, whatever the communicators have.
func TestFileErrors(t *testing.T) {
	r := job(t, 1)[0]
	dir := t.TempDir()
	r.world.handler.Store(uint64(errorsAreFatal))
	out := place(r.cMemory, Handle(7))
	if code := r.call("MPI_File_open", uint64(commWorld), r.text(dir+"/none"), modeReadOnly, 0x130, out); code != errNoFile {
		t.Errorf("MPI_File_open: code %d, want %d", code, errNoFile)
	}
	if *at[Handle](out) != fileNull {
		t.Errorf("the file's handle is %#x, want MPI_FILE_NULL", *at[Handle](out))
	}
	f := r.open(dir, "a", modeCreate|modeWriteOnly)
	if code := r.call("MPI_File_read", f, out, 1, 0x247, 0); code != errAccess {
		t.Errorf("MPI_File_read of a file that is written: code %d, want %d", code, errAccess)
	}
	r.freeHandle("MPI_File_close", f)
	if code := r.call("MPI_File_sync", f); code != errFile {
		t.Errorf("MPI_File_sync of a closed file: code %d, want %d", code, errFile)
	}
	if *r.status != -1 {
		t.Errorf("the job ends with status %d: %s", *r.status, r.stderr)
	}
}

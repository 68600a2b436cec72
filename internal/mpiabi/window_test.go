//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		world, null, page := uint64(commWorld), uint64(commNull), forbidden(t)
		out := place(r.cMemory, int64(0), int64(0))
		name := place(r.cMemory, make([]byte, maxObjectName)...)
		mem := place(r.cMemory, make([]int32, 4)...)
		win := r.made("MPI_Win_create", mem, 16, 4, 0x130, world)
		lookupWin(t, r, win).handler.Store(uint64(errorsReturn))
		r.must("MPI_Win_lock_all", 0, win)
		group := r.made("MPI_Comm_group", world)
		r.must("MPI_Win_create_keyval", 0, 0, out, 0)
		key := uint64(*at[int32](out))
		rows := []wrongCall{
			{"MPI_Win_create", Args{mem, neg(-1), 1, 0x130, world, out}, errSize},
			{"MPI_Win_create", Args{mem, 4, 0, 0x130, world, out}, errDisp},
			{"MPI_Win_create_c", Args{mem, 4, neg(-1), 0x130, world, out}, errDisp},
			{"MPI_Win_create", Args{0, 4, 1, 0x130, world, out}, errBuffer},
			{"MPI_Win_create", Args{mem, 4, 1, 0x130, null, out}, errComm},
			{"MPI_Win_create", Args{mem, 4, 1, 0x130, world, 0}, errArg},
			{"MPI_Win_allocate", Args{neg(-1), 1, 0x130, world, out, out}, errSize},
			{"MPI_Win_allocate", Args{4, neg(-1), 0x130, world, out, out}, errDisp},
			{"MPI_Win_allocate", Args{4, 1, 0x130, null, out, out}, errComm},
			{"MPI_Win_allocate", Args{4, 1, 0x130, world, 0, out}, errArg},
			{"MPI_Win_allocate", Args{4, 1, 0x130, world, page, out}, errBuffer},
			{"MPI_Win_free", Args{0}, errArg},
			{"MPI_Win_free", Args{place(r.cMemory, winNull)}, errWin},
			{"MPI_Win_get_group", Args{world, out}, errWin},
			{"MPI_Win_get_group", Args{win, 0}, errArg},
			{"MPI_Win_set_name", Args{uint64(winNull), name}, errWin},
			{"MPI_Win_set_name", Args{win, 0}, errArg},
			{"MPI_Win_get_name", Args{uint64(winNull), name, out}, errWin},
			{"MPI_Win_get_name", Args{win, 0, out}, errArg},
			{"MPI_Win_create_keyval", Args{0, 0, 0, 0}, errArg},
			{"MPI_Win_free_keyval", Args{page}, errBuffer},
			{"MPI_Win_set_attr", Args{uint64(winNull), key, 0}, errWin},
			{"MPI_Win_set_attr", Args{win, keyWinBase, 0}, errKeyval},
			{"MPI_Win_get_attr", Args{uint64(winNull), keyWinBase, out, out}, errWin},
			{"MPI_Win_get_attr", Args{win, keyTagUB, out, out}, errKeyval},
			{"MPI_Win_get_attr", Args{win, keyWinBase, 0, out}, errArg},
			{"MPI_Win_delete_attr", Args{win, 3}, errKeyval},
			{"MPI_Win_delete_attr", Args{world, key}, errWin},
			{"MPI_Alloc_mem", Args{neg(-1), 0x130, out}, errSize},
			{"MPI_Alloc_mem", Args{1 << 47, 0x130, out}, errNoMem},
			{"MPI_Alloc_mem", Args{8, 0x130, 0}, errArg},
			{"MPI_Alloc_mem", Args{8, 0x130, page}, errBuffer},
			{"MPI_Free_mem", Args{mem}, errBase},
			{"MPI_Win_fence", Args{0, world}, errWin},
			{"MPI_Win_post", Args{world, 0, win}, errGroup},
			{"MPI_Win_post", Args{group, 0, world}, errWin},
			{"MPI_Win_start", Args{world, 0, win}, errGroup},
			{"MPI_Win_complete", Args{win}, errRMASync},
			{"MPI_Win_wait", Args{win}, errRMASync},
			{"MPI_Win_test", Args{win, out}, errRMASync},
			{"MPI_Win_test", Args{win, 0}, errArg},
			{"MPI_Win_lock", Args{5, 0, 0, win}, errLockType},
			{"MPI_Win_lock", Args{lockShared, 1, 0, win}, errRank},
			{"MPI_Win_lock", Args{lockShared, 0, 0, win}, errRMASync},
			{"MPI_Win_unlock", Args{0, win}, errRMASync},
			{"MPI_Win_lock_all", Args{0, win}, errRMASync},
			{"MPI_Win_unlock_all", Args{uint64(winNull)}, errWin},
			{"MPI_Win_flush", Args{1, win}, errRank},
			{"MPI_Win_flush_all", Args{0}, errWin},
			{"MPI_Win_flush_local", Args{1, win}, errRank},
			{"MPI_Win_flush_local_all", Args{world}, errWin},
			{"MPI_Win_sync", Args{world}, errWin},
			{"MPI_Compare_and_swap", Args{0, mem, mem, 0x209, 0, 0, win}, errBuffer},
			{"MPI_Compare_and_swap", Args{mem, page, mem, 0x209, 0, 0, win}, errBuffer},
			{"MPI_Compare_and_swap", Args{mem, mem, 0, 0x209, 0, 0, win}, errBuffer},
			{"MPI_Compare_and_swap", Args{mem, mem, mem, 0x229, 0, 0, win}, errType},
			{"MPI_Compare_and_swap", Args{mem, mem, mem, 0x209, 0, 4, win}, errRMARange},
			{"MPI_Compare_and_swap", Args{mem, mem, mem, 0x209, 1, 0, win}, errRank},
			{"MPI_Compare_and_swap", Args{mem, mem, mem, 0x209, 0, 0, world}, errWin},
		}
		for _, name := range []string{"MPI_Put", "MPI_Get", "MPI_Rput", "MPI_Rget"} {
			row := func(want int32, args ...uint64) {
				if name[4] != 'P' && name[4] != 'G' {
					args = append(args, out)
				}
				rows = append(rows, wrongCall{name, args, want})
			}
			row(errBuffer, 0, 1, 0x209, 0, 0, 1, 0x209, win)
			row(errBuffer, page, 1, 0x209, 0, 0, 1, 0x209, win)
			row(errCount, mem, neg(-1), 0x209, 0, 0, 1, 0x209, win)
			row(errType, mem, 1, 0, 0, 0, 1, 0x209, win)
			row(errRank, mem, 1, 0x209, 1, 0, 1, 0x209, win)
			row(errRMARange, mem, 1, 0x209, 0, 4, 1, 0x209, win)
			row(errRMARange, mem, 1, 0x209, 0, neg(-1), 1, 0x209, win)
			row(errRMARange, mem, 1, 0x209, 0, 1<<62, 1, 0x209, win)
			row(errCount, mem, 1, 0x209, 0, 0, neg(-1), 0x209, win)
			row(errType, mem, 1, 0x209, 0, 0, 1, uint64(datatypeNull), win)
			row(errTruncate, mem, 1, 0x209, 0, 0, 2, 0x209, win)
			row(errWin, mem, 1, 0x209, 0, 0, 1, 0x209, world)
		}
		user := r.made("MPI_Op_create", 0x7001, 1)
		for _, c := range []struct {
			want                       int32
			src, typ, disp, op, window uint64
		}{
			{errBuffer, 0, 0x209, 0, uint64(opSum), win},
			{errType, mem, 0, 0, uint64(opSum), win},
			{errRMARange, mem, 0x209, 4, uint64(opSum), win},
			{errOp, mem, 0x209, 0, uint64(opNull), win},
			{errOp, mem, 0x209, 0, user, win},
			{errOp, mem, 0x209, 0, uint64(opMaxLoc), win},
			{errWin, mem, 0x209, 0, uint64(opSum), world},
		} {
			dst := place(r.cMemory, int64(0))
			rows = append(rows,
				wrongCall{"MPI_Accumulate", Args{c.src, 1, c.typ, 0, c.disp, 1, c.typ, c.op, c.window}, c.want},
				wrongCall{"MPI_Raccumulate", Args{c.src, 1, c.typ, 0, c.disp, 1, c.typ, c.op, c.window, out}, c.want},
				wrongCall{"MPI_Get_accumulate", Args{c.src, 1, c.typ, dst, 1, c.typ, 0, c.disp, 1, c.typ, c.op, c.window}, c.want},
				wrongCall{"MPI_Rget_accumulate", Args{c.src, 1, c.typ, dst, 1, c.typ, 0, c.disp, 1, c.typ, c.op, c.window, out}, c.want},
				wrongCall{"MPI_Fetch_and_op", Args{c.src, dst, c.typ, 0, c.disp, c.op, c.window}, c.want})
		}
		return append(rows,
			wrongCall{"MPI_Get_accumulate", Args{mem, 1, 0x209, 0, 1, 0x209, 0, 0, 1, 0x209, uint64(opSum), win}, errBuffer},
			wrongCall{"MPI_Get_accumulate", Args{mem, 1, 0x209, mem, 2, 0x209, 0, 0, 1, 0x209, uint64(opSum), win}, errTruncate},
			wrongCall{"MPI_Fetch_and_op", Args{mem, 0, 0x209, 0, 0, uint64(opSum), win}, errBuffer},
			wrongCall{"MPI_Accumulate", Args{mem, 1, 0x209, 1, 0, 1, 0x209, uint64(opSum), win}, errRank},
			wrongCall{"MPI_Rput", Args{mem, 1, 0x209, 0, 0, 1, 0x209, win, 0}, errArg},
			wrongCall{"MPI_Rget_c", Args{mem, 1, 0x209, 0, 0, 1, 0x209, win, page}, errBuffer})
	})
}

func lookupWin(t *testing.T, r *rank, h uint64) *window {
	t.Helper()
	w, ok := lookup[*window](&r.handles, Handle(h))
	if !ok {
		t.Fatalf("%#x is no window", h)
	}
	return w
}

// freeHandle calls a call that frees the handle that its argument points to.
func (r *rank) freeHandle(name string, h uint64) Handle {
	r.t.Helper()
	at1 := place(r.cMemory, Handle(h))
	r.must(name, at1)
	return *at[Handle](at1)
}

func TestWindowFence(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		world, me, next := uint64(commWorld), int32(i), uint64((i+1)%3)
		// Rank 1 has bytes that are no whole words, and displacements in bytes.
		mem := place(r.cMemory, make([]byte, 32)...)
		base, size, unit := mem, uint64(24), uint64(4)
		if i == 1 {
			base, size, unit = mem+1, 23, 1
		}
		win := r.made("MPI_Win_create", base, size, unit, 0x130, world)
		got := place(r.cMemory, uint64(0), uint64(0))
		for key, want := range map[uint64]int64{keyWinSize: int64(size), keyWinDispUnit: int64(unit), keyWinCreateFlavor: flavorCreate, keyWinModel: modelUnified} {
			r.must("MPI_Win_get_attr", win, key, got, got+8)
			v := int64(*at[int32](*at[uint64](got)))
			if key == keyWinSize {
				v = *at[int64](*at[uint64](got))
			}
			if v != want || *at[int32](got + 8) != 1 {
				t.Errorf("window attribute %d is %d, want %d", key, v, want)
			}
		}
		r.must("MPI_Win_get_attr", win, keyWinBase, got, got+8)
		if *at[uint64](got) != base {
			t.Errorf("the window begins at %#x, want %#x", *at[uint64](got), base)
		}
		r.same("the size of the window's group", r.results(1, "MPI_Group_size", r.made("MPI_Win_get_group", win)), 3)

		r.must("MPI_Win_fence", 0, win)
		src := place(r.cMemory, 100+me, 200+me, -1)
		disp := uint64(1)
		if next == 1 {
			disp = 4
		}
		r.must("MPI_Put", src, 2, 0x209, next, disp, 2, 0x209, win)
		r.must("MPI_Put", src, 1, 0x209, neg(procNull), 0, 1, 0x209, win)
		r.must("MPI_Win_fence", 0, win)
		before := (me + 2) % 3
		var b [4]byte
		copy(b[:], slice[byte](base+4, 4))
		if got := int32(b[0]) | int32(b[1])<<8; got != 100+before {
			t.Errorf("rank %d has %d, want %d", i, got, 100+before)
		}
		dst := place(r.cMemory, int32(0), 0)
		r.must("MPI_Get", dst, 8, 0x247, next, disp, 2, 0x209, win)
		r.same("MPI_Get", slice[int32](dst, 2), 100+me, 200+me)
		// Beyond the bytes of rank 1, though within its last word.
		lookupWin(t, r, win).handler.Store(uint64(errorsReturn))
		if code := r.call("MPI_Get", dst, 1, 0x247, 1, 23, 1, 0x247, win); code != errRMARange {
			t.Errorf("a byte behind the window: code %d, want %d", code, errRMARange)
		}
		r.must("MPI_Win_fence", 0, win)
		if h := r.freeHandle("MPI_Win_free", win); h != winNull {
			t.Errorf("a freed window's handle is %#x", h)
		}
		if i == 1 && (slice[byte](mem, 32)[0] != 0 || slice[byte](mem, 32)[24] != 0) {
			t.Error("bytes beside the window have changed")
		}
	})
}

// A column of a matrix at the target, which is a row here.
func TestWindowDatatypes(t *testing.T) {
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		column := r.made("MPI_Type_vector", 3, 1, 4, 0x209)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(column)))
		out := place(r.cMemory, uint64(0))
		win := r.made("MPI_Win_allocate", 48, 4, 0x130, uint64(commWorld), out)
		matrix := slice[int32](*at[uint64](out), 12)
		for k := range matrix {
			matrix[k] = int32(k)
		}
		r.must("MPI_Barrier", uint64(commWorld))
		r.must("MPI_Win_lock", lockExclusive, uint64(1-i), 0, win)
		row := place(r.cMemory, int32(-1), -2, -3)
		r.must("MPI_Put", row, 3, 0x209, uint64(1-i), 2, 1, column, win)
		back := place(r.cMemory, make([]int32, 12)...)
		r.must("MPI_Win_flush", uint64(1-i), win)
		r.must("MPI_Get", back, 1, column, uint64(1-i), 2, 1, column, win)
		r.same("the column back", slice[int32](back, 12), -1, 0, 0, 0, -2, 0, 0, 0, -3, 0, 0, 0)
		req := place(r.cMemory, Handle(0))
		r.must("MPI_Rget", back, 3, 0x209, uint64(1-i), 2, 1, column, win, req)
		r.must("MPI_Wait", req, 0)
		r.same("the column as a row", slice[int32](back, 3), -1, -2, -3)
		r.must("MPI_Rput", row+8, 1, 0x209, uint64(1-i), 0, 1, 0x209, win, req)
		r.must("MPI_Wait", req, 0)
		r.must("MPI_Win_unlock", uint64(1-i), win)
		r.must("MPI_Barrier", uint64(commWorld))
		r.same("the matrix", matrix, -3, 1, -1, 3, 4, 5, -2, 7, 8, 9, -3, 11)
		r.freeHandle("MPI_Win_free", win)
	})
}

// Posts and starts, and compares of all ranks on one value.
func TestWindowEpochs(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		world := uint64(commWorld)
		out := place(r.cMemory, uint64(0))
		win := r.made("MPI_Win_allocate_c", 16, 8, 0x130, world, out)
		all := r.made("MPI_Comm_group", world)
		zero := r.made("MPI_Group_incl", all, 1, place(r.cMemory, int32(0)))
		rest := r.made("MPI_Group_excl", all, 1, place(r.cMemory, int32(0)))
		own := slice[int64](*at[uint64](out), 2)
		if i == 0 {
			r.must("MPI_Win_post", rest, 0, win)
			r.must("MPI_Win_wait", win)
			if !slices.Equal(own, []int64{1, 2}) {
				t.Errorf("rank 0 has %v, want 1, 2", own)
			}
			own[0] = 0
		} else {
			r.must("MPI_Win_start", zero, 0, win)
			v := place(r.cMemory, int64(i))
			r.must("MPI_Put", v, 1, 0x258, 0, uint64(i-1), 1, 0x258, win)
			r.must("MPI_Win_complete", win)
		}
		r.must("MPI_Barrier", world)
		r.must("MPI_Win_lock_all", 0, win)
		// Each rank adds 1, ten times.
		v := place(r.cMemory, int64(0), int64(0), int64(0))
		for range 10 {
			for {
				r.must("MPI_Get", v, 1, 0x258, 0, 0, 1, 0x258, win)
				*at[int64](v + 8) = *at[int64](v) + 1
				r.must("MPI_Compare_and_swap", v+8, v, v+16, 0x258, 0, 0, win)
				r.must("MPI_Win_flush_all", win)
				if *at[int64](v + 16) == *at[int64](v) {
					break
				}
			}
		}
		r.must("MPI_Win_sync", win)
		r.must("MPI_Win_flush_local_all", win)
		r.must("MPI_Win_unlock_all", win)
		r.must("MPI_Barrier", world)
		if i == 0 && own[0] != 30 {
			t.Errorf("the sum is %d, want 30", own[0])
		}
		r.freeHandle("MPI_Win_free", win)
	})
}

// Windows have attributes and names of their own. Their errors are fatal at first.
func TestWindowObjects(t *testing.T) {
	r := job(t, 1)[0]
	world := uint64(commWorld)
	win := r.made("MPI_Win_create", 0, 0, 1, 0x130, world)
	var deleted []uint64
	r.config.Callback = func(_ uint64, args ...uint64) uint64 {
		deleted = append(deleted, args[0], args[2])
		return 0
	}
	out := place(r.cMemory, uint64(0), uint64(0))
	r.must("MPI_Win_create_keyval", 0, 0x7002, out, 0)
	key := uint64(*at[int32](out))
	r.must("MPI_Win_set_attr", win, key, 5)
	r.must("MPI_Win_get_attr", win, key, out, out+8)
	if *at[uint64](out) != 5 || *at[int32](out + 8) != 1 {
		t.Errorf("the attribute is %d, want 5", *at[uint64](out))
	}
	text := place(r.cMemory, make([]byte, maxObjectName)...)
	r.must("MPI_Win_get_name", win, text, out)
	if *at[int32](out) != 0 {
		t.Errorf("a new window has a name of %d bytes, want none", *at[int32](out))
	}
	copy(slice[byte](text, 8), "halo\x00")
	r.must("MPI_Win_set_name", win, text)
	clear(slice[byte](text, 8))
	r.must("MPI_Win_get_name", win, text, out)
	if got := string(slice[byte](text, 5)); got != "halo\x00" || *at[int32](out) != 4 {
		t.Errorf("the window has the name %q", got)
	}
	r.freeHandle("MPI_Win_free", win)
	if !slices.Equal(deleted, []uint64{win, 5}) {
		t.Errorf("the delete function got %v, want the window and 5", deleted)
	}
	r.must("MPI_Alloc_mem", 1000, 0x130, out)
	mem := *at[uint64](out)
	slice[byte](mem, 1000)[999] = 1
	r.must("MPI_Free_mem", mem)
	r.self.handler.Store(uint64(errorsReturn))
	if code := r.call("MPI_Free_mem", mem); code != errBase {
		t.Errorf("memory that is freed twice: code %d, want %d", code, errBase)
	}
}

// All ranks combine with the values of rank 0 at the same time.
func TestAccumulate(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		const intType, pair = 0x209, 0x229
		world := uint64(commWorld)
		out := place(r.cMemory, uint64(0))
		win := r.made("MPI_Win_allocate", 64, 4, 0x130, world, out)
		own := slice[int32](*at[uint64](out), 16)
		even := r.made("MPI_Type_vector", 2, 1, 2, intType)
		r.must("MPI_Type_commit", place(r.cMemory, Handle(even)))
		r.must("MPI_Win_fence", 0, win)
		src := place(r.cMemory, int32(1), 2, 3, 4)
		old := place(r.cMemory, make([]int32, 8)...)
		req := place(r.cMemory, Handle(0))
		for range 20 {
			r.must("MPI_Accumulate", src, 2, intType, 0, 0, 1, even, uint64(opSum), win) // Values 0 and 2.
			r.must("MPI_Raccumulate", src+8, 1, intType, 0, 1, 1, intType, uint64(opSum), win, req)
			r.must("MPI_Wait", req, 0)
			r.must("MPI_Get_accumulate", src, 1, intType, old, 1, intType, 0, 3, 1, intType, uint64(opSum), win)
			r.must("MPI_Rget_accumulate", 0, 0, intType, old, 2, even, 0, 0, 2, even, uint64(opNoOp), win, req)
			r.must("MPI_Wait", req, 0)
			r.must("MPI_Fetch_and_op", src, old+16, intType, 0, 4, uint64(opSum), win)
		}
		r.must("MPI_Accumulate", src, 1, intType, neg(procNull), 0, 1, intType, uint64(opSum), win)
		// The greatest value, and its place: rank 2 has it. The int after the value is 8 bytes behind it.
		best := place(r.cMemory, [2]float64{float64(i)})
		*at[int32](best + 8) = int32(10 + i)
		r.must("MPI_Accumulate", best, 1, pair, 0, 8, 1, pair, uint64(opMaxLoc), win)
		r.must("MPI_Fetch_and_op", src, old+20, intType, 0, 5, uint64(opReplace), win)
		r.must("MPI_Win_fence", 0, win)
		if i == 0 {
			r.same("the values", own[:6], 60, 180, 120, 60, 60, 1)
			if v := *at[float64](*at[uint64](out) + 32); v != 2 || own[10] != 12 {
				t.Errorf("the greatest value is %v at %d, want 2 at 12", v, own[10])
			}
		}
		r.must("MPI_Get_accumulate", 0, 0, intType, old, 2, even, 0, 0, 2, even, uint64(opNoOp), win)
		r.same("what is fetched", slice[int32](old, 4), 60, 0, 120, 60)
		r.must("MPI_Win_fence", 0, win)
		r.freeHandle("MPI_Win_free", win)
	})
}

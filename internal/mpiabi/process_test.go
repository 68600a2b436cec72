//go:build linux

package mpiabi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("spawned C rank", spawnedRank)
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		world, page, out := uint64(commWorld), forbidden(t), place(r.cMemory, Handle(0))
		port, none := r.text("no port"), uint64(infoNull)
		text := func(s string) uint64 { return r.text(s) }
		list := func(v ...uint64) uint64 { return place(r.cMemory, v...) }
		one := place(r.cMemory, int32(1))
		pipe := make([]int, 2)
		if err := syscall.Pipe(pipe); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = syscall.Close(pipe[0])
			_ = syscall.Close(pipe[1])
		})
		return []wrongCall{
			{"MPI_Comm_get_parent", Args{0}, errArg},
			{"MPI_Comm_get_parent", Args{page}, errBuffer},
			{"MPI_Comm_disconnect", Args{0}, errArg},
			{"MPI_Comm_disconnect", Args{place(r.cMemory, commWorld)}, errComm},
			{"MPI_Comm_disconnect", Args{place(r.cMemory, commNull)}, errComm},
			{"MPI_Open_port", Args{0, port}, errInfo},
			{"MPI_Open_port", Args{none, 0}, errArg},
			{"MPI_Open_port", Args{none, page}, errBuffer},
			{"MPI_Close_port", Args{0}, errArg},
			{"MPI_Close_port", Args{page}, errBuffer},
			{"MPI_Close_port", Args{port}, errPort},
			{"MPI_Comm_accept", Args{port, none, 0, world, out}, errPort},
			{"MPI_Comm_accept", Args{port, none, 1, world, out}, errRoot},
			{"MPI_Comm_accept", Args{port, none, 0, uint64(commNull), out}, errComm},
			{"MPI_Comm_accept", Args{port, none, 0, world, 0}, errArg},
			{"MPI_Comm_accept", Args{0, none, 0, world, out}, errArg},
			{"MPI_Comm_accept", Args{port, 0, 0, world, out}, errInfo},
			{"MPI_Comm_connect", Args{port, none, 0, world, out}, errPort},
			{"MPI_Comm_connect", Args{page, none, 0, world, out}, errBuffer},
			{"MPI_Comm_connect", Args{port, none, neg(-1), world, out}, errRoot},
			{"MPI_Comm_connect", Args{port, none, 0, 0, out}, errComm},
			{"MPI_Publish_name", Args{0, none, port}, errArg},
			{"MPI_Publish_name", Args{text("service"), 0, port}, errInfo},
			{"MPI_Publish_name", Args{text("service"), none, 0}, errArg},
			{"MPI_Publish_name", Args{text("service"), none, port}, errPort},
			{"MPI_Unpublish_name", Args{text("service"), none, port}, errService},
			{"MPI_Unpublish_name", Args{page, none, port}, errBuffer},
			{"MPI_Lookup_name", Args{text("no service"), none, out}, errName},
			{"MPI_Lookup_name", Args{0, none, out}, errArg},
			{"MPI_Lookup_name", Args{text("no service"), 0, out}, errInfo},
			{"MPI_Comm_join", Args{neg(-1), out}, errArg},
			{"MPI_Comm_join", Args{uint64(pipe[0]), out}, errArg},
			{"MPI_Comm_join", Args{uint64(pipe[0]), 0}, errArg},
			{"MPI_Comm_spawn", Args{text("/nowhere/program"), 0, 1, none, 0, world, out, 0}, errSpawn},
			{"MPI_Comm_spawn", Args{text(""), 0, 1, none, 0, world, out, 0}, errArg},
			{"MPI_Comm_spawn", Args{0, 0, 1, none, 0, world, out, 0}, errArg},
			{"MPI_Comm_spawn", Args{text("true"), page, 1, none, 0, world, out, 0}, errBuffer},
			{"MPI_Comm_spawn", Args{text("true"), list(page, 0), 1, none, 0, world, out, 0}, errBuffer},
			{"MPI_Comm_spawn", Args{text("true"), 0, 0, none, 0, world, out, 0}, errArg},
			{"MPI_Comm_spawn", Args{text("true"), 0, 1, 0, 0, world, out, 0}, errInfo},
			{"MPI_Comm_spawn", Args{text("true"), 0, 1, none, 1, world, out, 0}, errRoot},
			{"MPI_Comm_spawn", Args{text("true"), 0, 1, none, 0, uint64(commNull), out, 0}, errComm},
			{"MPI_Comm_spawn", Args{text("true"), 0, 1, none, 0, world, 0, 0}, errArg},
			{"MPI_Comm_spawn_multiple", Args{0, 0, 0, 0, 0, 0, world, out, 0}, errArg},
			{"MPI_Comm_spawn_multiple", Args{neg(-1), 0, 0, 0, 0, 0, world, out, 0}, errCount},
			{"MPI_Comm_spawn_multiple", Args{1, 0, 0, one, list(none), 0, world, out, 0}, errArg},
			{"MPI_Comm_spawn_multiple", Args{1, list(0), 0, one, list(none), 0, world, out, 0}, errArg},
			{"MPI_Comm_spawn_multiple", Args{1, list(text("true")), page, one, list(none), 0, world, out, 0}, errBuffer},
			{"MPI_Comm_spawn_multiple", Args{1, list(text("true")), 0, 0, list(none), 0, world, out, 0}, errArg},
			{"MPI_Comm_spawn_multiple", Args{1, list(text("true")), 0, one, list(0), 0, world, out, 0}, errInfo},
			{"MPI_Comm_spawn_multiple", Args{1, list(text("true")), 0, one, list(none), 0, 0, out, 0}, errComm},
		}
	})
}

// exchange sends a number to each rank of the other group, receives theirs, and has a nonblocking collective of
// both groups meanwhile.
func (r *rank) exchange(inter uint64, remote int) {
	r.t.Helper()
	const intType = 0x209
	out, mine, sum := place(r.cMemory, int32(0), 0), place(r.cMemory, int32(0)), place(r.cMemory, int32(0))
	req := place(r.cMemory, Handle(0))
	r.must("MPI_Comm_remote_size", inter, out)
	r.must("MPI_Comm_rank", inter, out+4)
	if v := slice[int32](out, 2); int(v[0]) != remote {
		r.t.Errorf("%d remote ranks, want %d", v[0], remote)
	}
	*at[int32](mine) = 100 + *at[int32](out + 4)
	r.must("MPI_Ibarrier", inter, req)
	for to := range remote {
		r.must("MPI_Send", mine, 1, intType, uint64(to), 3, inter)
	}
	for from := range remote {
		r.must("MPI_Recv", sum, 1, intType, uint64(from), 3, inter, 0)
		r.same("a number of the other job", slice[int32](sum, 1), int32(100+from))
	}
	r.must("MPI_Wait", req, 0)
}

// Two jobs meet by a name that one has published, talk, and disconnect.
func TestPorts(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	a, b := jobOn(t, node, 2), jobOn(t, node, 1)
	port := place(a[1].cMemory, make([]byte, maxPortName)...)
	service := "the service of this test"
	a[1].must("MPI_Open_port", uint64(infoNull), port)
	a[1].must("MPI_Publish_name", a[1].text(service), uint64(infoNull), port)
	each(append(a, b...), func(i int, r *rank) {
		var inter uint64
		switch {
		case r == b[0]:
			found := place(r.cMemory, make([]byte, maxPortName)...)
			r.must("MPI_Lookup_name", r.text(service), uint64(infoNull), found)
			inter = r.made("MPI_Comm_connect", found, uint64(infoNull), 0, uint64(commWorld))
			r.exchange(inter, 2)
		case i == 1:
			inter = r.made("MPI_Comm_accept", port, uint64(infoNull), 1, uint64(commWorld))
			r.exchange(inter, 1)
		default: // The port matters at the root only.
			inter = r.made("MPI_Comm_accept", 0, 0, 1, uint64(commWorld))
			r.exchange(inter, 1)
		}
		if h := r.freeHandle("MPI_Comm_disconnect", inter); h != commNull {
			t.Errorf("MPI_Comm_disconnect leaves %#x, want MPI_COMM_NULL", h)
		}
	})
	a[1].must("MPI_Unpublish_name", a[1].text(service), uint64(infoNull), port)
	a[1].must("MPI_Close_port", port)
	a[1].self.handler.Store(uint64(errorsReturn))
	if code := a[1].call("MPI_Close_port", port); code != errPort {
		t.Errorf("MPI_Close_port again: code %d, want %d", code, errPort)
	}
}

// Two programs join by a socket of theirs, which stays as it is.
func TestJoin(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	a, b := jobOn(t, node, 1), jobOn(t, node, 1)
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	each(append(a, b...), func(i int, r *rank) {
		inter := r.made("MPI_Comm_join", uint64(fds[i]))
		r.exchange(inter, 1)
		r.freeHandle("MPI_Comm_disconnect", inter)
	})
	for _, fd := range fds {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
		if errno != 0 || flags&syscall.O_NONBLOCK != 0 {
			t.Errorf("the flags of the socket are %#x, %v, want a blocking one", flags, errno)
		}
	}
	// The other end of this socket is closed.
	_ = syscall.Close(fds[1])
	a[0].self.handler.Store(uint64(errorsReturn))
	if code := a[0].call("MPI_Comm_join", uint64(fds[0]), place(a[0].cMemory, Handle(0))); code != errOther {
		t.Errorf("MPI_Comm_join of a socket without another end: code %d, want %d", code, errOther)
	}
	_ = syscall.Close(fds[0])
}

var errChild = errors.New("the child has seen something else")

// spawnedRank is a program of C that another one has spawned. It tells its parents its number, its command, and
// its argument.
func spawnedRank(_ context.Context, _ *vmmc.Process, args ...string) error {
	e := New(Config{})
	call := func(name string, args ...uint64) error {
		if code := e.Call(e.Context(), Number(name), args); code != errSuccess {
			return fmt.Errorf("%s: code %d: %w", name, code, errChild)
		}
		return nil
	}
	if err := call("MPI_Init", 0, 0); err != nil {
		return err
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	parent, twice := Handle(0), Handle(0)
	if err := errors.Join(call("MPI_Comm_get_parent", address(&parent)), call("MPI_Comm_get_parent", address(&twice))); err != nil {
		return err
	}
	if parent == commNull || parent != twice {
		return fmt.Errorf("the parent is %#x, then %#x: %w", parent, twice, errChild)
	}
	told := []int32{int32(e.world.c.Rank()), e.commAttributes.appnum, int32(n)}
	if err := call("MPI_Send", address(&told[0]), 3, 0x209, 0, 5, uint64(parent)); err != nil {
		return err
	}
	if err := call("MPI_Comm_disconnect", address(&parent)); err != nil {
		return err
	}
	if err := call("MPI_Comm_get_parent", address(&parent)); err != nil {
		return err
	}
	if parent != commNull {
		return fmt.Errorf("the parent is %#x after MPI_Comm_disconnect: %w", parent, errChild)
	}
	return call("MPI_Finalize")
}

func TestSpawn(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("VMMC_TEST_ROLE", "spawned C rank")
	rs := job(t, 2)
	each(rs, func(i int, r *rank) {
		command := r.text(exe)
		argv := func(word string) uint64 { return place(r.cMemory, r.text("--"), r.text(word), 0) }
		codes := place(r.cMemory, int32(-1), -1, -1)
		// told are the numbers of each child.
		told := func(inter uint64, n int) {
			t.Helper()
			buf := place(r.cMemory, make([]int32, 3)...)
			for from := range n {
				if i != 0 {
					break
				}
				r.must("MPI_Recv", buf, 3, 0x209, uint64(from), 5, inter, 0)
				r.same("a child tells", slice[int32](buf, 3), int32(from), int32(from/2), int32(7+from/2))
			}
			r.freeHandle("MPI_Comm_disconnect", inter)
			r.same("array_of_errcodes", slice[int32](codes, 3)[:n], make([]int32, n)...)
		}
		out := place(r.cMemory, Handle(0))
		// Arguments of the programs matter at the root only.
		if i == 1 {
			r.must("MPI_Comm_spawn", command, argv("7"), 2, uint64(infoNull), 1, uint64(commWorld), out, codes)
		} else {
			r.must("MPI_Comm_spawn", 0, 0, 0, 0, 1, uint64(commWorld), out, codes)
		}
		told(uint64(*at[Handle](out)), 2)
		dir := r.made("MPI_Info_create")
		r.must("MPI_Info_set", dir, r.text("wdir"), r.text("/"))
		r.must("MPI_Comm_spawn_multiple", 2, place(r.cMemory, command, command), place(r.cMemory, argv("7"), argv("8")),
			place(r.cMemory, int32(2), 1), place(r.cMemory, infoNull, Handle(dir)), 0, uint64(commWorld), out, codes)
		told(uint64(*at[Handle](out)), 3)
		// A program that is not there is an error of all ranks.
		want := errSpawn
		if i != 0 {
			want = errOther
		}
		if code := r.call("MPI_Comm_spawn", r.text("/nowhere/program"), 0, 2, uint64(infoNull), 0, uint64(commWorld), out, codes); code != want {
			t.Errorf("MPI_Comm_spawn of no program: code %d, want %d", code, want)
		}
		if i == 0 {
			r.same("array_of_errcodes", slice[int32](codes, 2), errSpawn, errSpawn)
		}
		if h := *at[Handle](out); h != commNull {
			t.Errorf("a spawn that has failed leaves %#x, want MPI_COMM_NULL", h)
		}
	})
}

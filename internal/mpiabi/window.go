package mpiabi

import (
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "One-Sided Communications": windows, and memory for them.

const winNull Handle = 0x110

// Values of window attributes, and types of locks.
const (
	flavorCreate   = 311
	flavorAllocate = 312
	modelUnified   = 321

	lockExclusive = 301
	lockShared    = 302
)

// window is a window of bytes. Package mpi's windows have values of one type and whole words; those of C
// have displacements in units that each rank chooses, and any number of bytes.
type window struct {
	h       Handle
	w       *mpi.Win[byte]
	rank    int
	handler atomic.Uint64
	name    atomic.Pointer[string] // by MPI_Win_set_name; nil: none
	parts   []windowPart           // of all ranks

	attributes attributes
	base       uint64
	values     *windowValues
}

// windowPart is a rank's memory as others see it.
type windowPart struct {
	unit  int64 // bytes of a displacement
	size  int64 // bytes
	shift int64 // bytes before it that belong to the first word
}

// windowValues are the values of the keys that the standard has named. A program gets their addresses.
type windowValues struct {
	size                int64
	unit, flavor, model int32
}

func (w *window) errhandler() *atomic.Uint64 { return &w.handler }

func (w *window) self() Handle { return w.h }

func (w *window) describe() string { return fmt.Sprintf("rank %d of %s", w.rank, w.w.Name()) }

// win is the window that an argument is the handle of.
func (e *Env) win(a *arguments, i int) (*window, error) {
	h := a.Handle(i)
	if w, ok := lookup[*window](&e.handles, h); ok {
		return w, nil
	}
	if h == winNull {
		return nil, fail(a.name(i), errWin, "it is MPI_WIN_NULL")
	}
	return nil, fail(a.name(i), errWin, "%#x is no window, or one that is freed", uint64(h))
}

func init() {
	register("MPI_Win_create", winCreate)
	register("MPI_Win_allocate", winAllocate)
	register("MPI_Win_free", winFree)
	register("MPI_Win_get_group", func(e *Env, a *arguments) error {
		w, err := e.win(a, 0)
		if err != nil {
			return err
		}
		return e.addGroup(a, 1, w.w.Group())
	})
	register("MPI_Win_set_name", func(e *Env, a *arguments) error {
		w, err := e.win(a, 0)
		if err != nil {
			return err
		}
		name, err := a.cString(1, maxObjectName-1)
		if err != nil {
			return err
		}
		w.name.Store(&name)
		if name != "" { // Errors name the window.
			w.w.SetName(name)
		}
		return nil
	})
	register("MPI_Win_get_name", func(e *Env, a *arguments) error {
		w, err := e.win(a, 0)
		if err != nil {
			return err
		}
		name := ""
		if set := w.name.Load(); set != nil {
			name = *set
		}
		return a.setName(1, 2, name)
	})
	registerAttributes(attributed{"MPI_Win", func(e *Env, a *arguments) (*attributes, error) {
		w, err := e.win(a, 0)
		if err != nil {
			return nil, err
		}
		return &w.attributes, nil
	}, winAttribute}, "MPI_Win_create_keyval", "MPI_Win_free_keyval",
		"MPI_Win_set_attr", "MPI_Win_get_attr", "MPI_Win_delete_attr")

	register("MPI_Alloc_mem", allocMem)
	register("MPI_Free_mem", freeMem)
}

func winAttribute(e *Env, a *arguments, key Handle) (value uint64, ok, known bool) {
	w, err := e.win(a, 0)
	if err != nil {
		return 0, false, false
	}
	switch key {
	case keyWinBase:
		return w.base, true, true
	case keyWinSize:
		return address(&w.values.size), true, true
	case keyWinDispUnit:
		return address(&w.values.unit), true, true
	case keyWinCreateFlavor:
		return address(&w.values.flavor), true, true
	case keyWinModel:
		return address(&w.values.model), true, true
	}
	return 0, false, false
}

// sized is the size and the unit of a new window.
func (a *arguments) sized(i int) (size, unit int, err error) {
	if size = a.Count(i); size < 0 || size > maxBytes {
		return 0, 0, fail(a.name(i), errSize, "it is %d, want 0 to %d", size, int64(maxBytes))
	}
	unit = a.Int(i + 1)
	if a.p.params[i+1].width == 8 {
		unit = a.Count(i + 1)
	}
	if unit < 1 {
		return 0, 0, fail(a.name(i+1), errDisp, "it is %d, want 1 or more", unit)
	}
	return size, unit, nil
}

func winCreate(e *Env, a *arguments) error {
	size, unit, err := a.sized(1)
	if err != nil {
		return err
	}
	base := a.Addr(0)
	if base == 0 && size > 0 {
		return fail(a.name(0), errBuffer, "it is NULL, and the window has %d bytes", size)
	}
	// Remote memory is whole words of 4 bytes. The bytes beside the program's are in the same words, and
	// so in the same pages. No call reaches them.
	const word = 4
	shift := int(base % word)
	var mem []byte
	if size > 0 {
		if err := a.access(0, func() {
			checkAddress(base, size, 1)
			mem = slice[byte](base-uint64(shift), (shift+size+word-1)/word*word)
			touch(mem, true)
		}); err != nil {
			return err
		}
	}
	return e.newWin(a, 4, windowPart{int64(unit), int64(size), int64(shift)}, flavorCreate, func(c *mpi.Comm) (*mpi.Win[byte], error) {
		return mpi.WinCreate(a.ctx, c, mem)
	}, func(*mpi.Win[byte]) (uint64, error) { return base, nil })
}

func winAllocate(e *Env, a *arguments) error {
	size, unit, err := a.sized(0)
	if err != nil {
		return err
	}
	out := a.Addr(4)
	if out == 0 {
		return fail(a.name(4), errArg, "it is NULL, want where to store the address")
	}
	if err := a.access(4, func() { *at[uint64](out) = 0 }); err != nil {
		return err
	}
	const align = 16 // as malloc has it
	return e.newWin(a, 3, windowPart{int64(unit), int64(size), 0}, flavorAllocate, func(c *mpi.Comm) (*mpi.Win[byte], error) {
		return mpi.WinAllocate[byte](a.ctx, c, (size+align-1)/align*align)
	}, func(w *mpi.Win[byte]) (base uint64, err error) {
		if size > 0 {
			base = address(&w.Values()[0])
		}
		return base, a.access(4, func() { *at[uint64](out) = base })
	})
}

// newWin makes a window of the communicator that argument i is. The last argument is where its handle goes.
func (e *Env) newWin(
	a *arguments, i int, mine windowPart, flavor int32,
	create func(c *mpi.Comm) (*mpi.Win[byte], error), base func(w *mpi.Win[byte]) (uint64, error),
) error {
	c, err := e.comm(a, i)
	if err != nil {
		return err
	}
	last := len(a.p.params) - 1
	// The call is a collective, so a wrong address must be found before.
	if err := a.setHandle(last, winNull); err != nil {
		return err
	}
	if c.c.Inter() {
		return fail(a.name(i), errComm, "%s is an intercommunicator, which has no windows", c.c.Name())
	}
	w := &window{rank: c.c.Rank(), parts: make([]windowPart, c.c.Size())}
	if err := mpi.Allgather(a.ctx, c.c, []windowPart{mine}, w.parts); err != nil {
		return err
	}
	if w.w, err = create(c.c); err != nil {
		return err
	}
	if w.base, err = base(w.w); err != nil {
		return err
	}
	w.values = &windowValues{size: mine.size, unit: int32(mine.unit), flavor: flavor, model: modelUnified}
	w.handler.Store(uint64(errorsAreFatal))
	w.h = e.handles.add(w)
	return a.setHandle(last, w.h)
}

// winFree frees a window, and stores MPI_WIN_NULL in its handle.
func winFree(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	w, ok := lookup[*window](&e.handles, h)
	if !ok {
		return fail(a.name(0), errWin, "%#x is no window, or one that is freed", uint64(h))
	}
	if err := w.attributes.removeAll(e, h); err != nil {
		return err
	}
	if err := w.w.Free(a.ctx); err != nil {
		return err
	}
	remove[*window](&e.handles, h)
	return a.setHandle(0, winNull)
}

// allocMem allocates memory. The environment keeps it until MPI_Free_mem. Go's heap would end the
// program if there is no room, so it comes from the operating system.
func allocMem(e *Env, a *arguments) error {
	size := a.Count(0)
	if size < 0 || size > maxBytes {
		return fail(a.name(0), errSize, "it is %d, want 0 to %d", size, int64(maxBytes))
	}
	out := a.Addr(2)
	if out == 0 {
		return fail(a.name(2), errArg, "it is NULL, want where to store the address")
	}
	if err := a.access(2, func() { *at[uint64](out) = 0 }); err != nil {
		return err
	}
	err := shm.CheckRoom(size)
	var mem *shm.Region
	if err == nil {
		mem, err = shm.NewSparse("mpi memory", max(size, 1), false)
	}
	if err != nil {
		return fail(a.name(0), errNoMem, "%d bytes: %v", size, err)
	}
	addr := address(&mem.Bytes()[0])
	e.allocated.Store(addr, mem)
	return a.access(2, func() { *at[uint64](out) = addr })
}

func freeMem(e *Env, a *arguments) error {
	mem, ok := e.allocated.LoadAndDelete(a.Addr(0))
	if !ok {
		return fail(a.name(0), errBase, "%#x is no memory of MPI_Alloc_mem, or it is freed", a.Addr(0))
	}
	mem.(*shm.Region).Forbid() //nolint:forcetypeassert // No other type is stored.
	return nil
}

package mpi

import (
	"context"
	"errors"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// FileMode is how a file is opened: one of ModeReadOnly, ModeWriteOnly and ModeReadWrite, and any of
// the others that go with it.
//
// Experimental: it may change in any release.
type FileMode int

// The modes. Beside each its name in MPI.
//
// Experimental: they may change in any release.
const (
	ModeCreate        FileMode = 1 << iota // MPI_MODE_CREATE: make the file if there is none
	ModeReadOnly                           // MPI_MODE_RDONLY: not with ModeCreate
	ModeWriteOnly                          // MPI_MODE_WRONLY
	ModeReadWrite                          // MPI_MODE_RDWR: not with ModeSequential
	ModeDeleteOnClose                      // MPI_MODE_DELETE_ON_CLOSE
	ModeUniqueOpen                         // MPI_MODE_UNIQUE_OPEN: nothing else opens the file; it changes nothing
	ModeExcl                               // MPI_MODE_EXCL: with ModeCreate, the file must not be there
	ModeAppend                             // MPI_MODE_APPEND: all file pointers begin at the end
	ModeSequential                         // MPI_MODE_SEQUENTIAL: calls with shared file pointers alone
)

const (
	accessModes = ModeReadOnly | ModeWriteOnly | ModeReadWrite
	allModes    = ModeSequential<<1 - 1
)

func (m FileMode) check(call string) error {
	switch access := m & accessModes; {
	case access != ModeReadOnly && access != ModeWriteOnly && access != ModeReadWrite:
		return fail(call, "amode", ErrMode, "want one of ModeReadOnly, ModeWriteOnly and ModeReadWrite")
	case m&^allModes != 0:
		return fail(call, "amode", ErrMode, "it has the unknown bits %#x", int(m&^allModes))
	case access == ModeReadOnly && m&(ModeCreate|ModeExcl) != 0:
		return fail(call, "amode", ErrMode, "ModeReadOnly does not go with ModeCreate and ModeExcl")
	case access == ModeReadWrite && m&ModeSequential != 0:
		return fail(call, "amode", ErrMode, "ModeReadWrite does not go with ModeSequential")
	}
	return nil
}

// flags are those of os.OpenFile. Rank 0 alone creates the file.
func (m FileMode) flags(first bool) int {
	flags := map[FileMode]int{ModeReadOnly: os.O_RDONLY, ModeWriteOnly: os.O_WRONLY, ModeReadWrite: os.O_RDWR}[m&accessModes]
	if first && m&ModeCreate != 0 {
		flags |= os.O_CREATE
		if m&ModeExcl != 0 {
			flags |= os.O_EXCL
		}
	}
	return flags
}

// The hints that are used. All others have no effect.
const (
	hintBuffer     = "cb_buffer_size"
	hintNodes      = "cb_nodes"
	hintCollective = "collective_buffering"
	hintSieve      = "romio_ds_write"
)

const defaultBuffer = 4 << 20 // bytes of cb_buffer_size

// hints are those of FileOpen.
type hints struct {
	buffer      int64
	aggregators int64 // 0: one for each node
	collective  int64 // whether collectives gather data at aggregators: 0 as it seems better, 1 always, 2 never
	sieve       int64 // 1: a write may rewrite the bytes between those it writes
}

func hintsOf(call string, given map[string]string) (hints, error) {
	h := hints{buffer: defaultBuffer}
	for _, x := range []struct {
		key  string
		to   *int64
		most int64
	}{{hintBuffer, &h.buffer, math.MaxInt32}, {hintNodes, &h.aggregators, math.MaxInt32}} {
		s, ok := given[x.key]
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < 1 || v > x.most {
			return h, fail(call, "info", ErrInfoValue, "hint %s is %q, want a number from 1 to %d", x.key, s, x.most)
		}
		*x.to = v
	}
	for _, x := range []struct {
		key    string
		to     *int64
		values []string
	}{
		{hintCollective, &h.collective, []string{"automatic", "true", "false"}},
		{hintSieve, &h.sieve, []string{"disable", "enable"}},
	} {
		s, ok := given[x.key]
		if !ok {
			continue
		}
		i := slices.Index(x.values, s)
		if i < 0 {
			return h, fail(call, "info", ErrInfoValue, "hint %s is %q, want one of %q", x.key, s, x.values)
		}
		*x.to = int64(i)
	}
	return h, nil
}

// File is a file that the ranks of a communicator have open (MPI_File, chapter I/O). Calls may be made
// from any goroutine. Collectives begin in the same order at all ranks.
//
// Data is written to the file when a call returns: other ranks that see the same file system read it
// from then on. Sync brings it to the disk. Concurrent calls that touch the same bytes have the
// outcome of one after another only in atomic mode, see [File.SetAtomicity].
//
// When a rank has ended, collectives fail with [ErrProcFailed]. So do calls with the shared file
// pointer if it was rank 0, and calls in atomic mode that wait for a lock which it may hold. Other
// calls go on.
//
// Experimental: it may change in any release.
type File struct {
	c           *Comm // of the file's own messages
	os          *os.File
	name        string
	mode        FileMode
	hints       hints
	aggregators []int // ranks
	control     memory
	lock        *memoryLock  // of atomic mode
	close       func() error // of rank 0's control block

	mu      sync.Mutex
	v       *view
	pointer int64 // the individual file pointer, in items of etype
	atomic  bool
	dirty   bool // reports whether something was written
	closed  bool
	open    int           // calls that are under way
	idle    chan struct{} // closed when open becomes 0; nil without a waiter
}

// The control block lies at rank 0. Other ranks change it by atomics, and by words of their own.
const (
	pointerAt = 0 // the shared file pointer
	atomicAt  = 8 // the lock of atomic mode
)

func fileControlSize(ranks int) int { return atomicAt + lockSize(ranks) }

// fileOffer is what ranks tell each other when they open a file.
type fileOffer struct {
	name, mode uint64
	h          hints
	class      int64
}

// FileOpen opens a file for all ranks of a communicator (MPI_File_open, chapter I/O). It is a
// collective. Hints may be nil; hints of other names than these have no effect, among them those of
// striping:
//
//	cb_nodes              how many ranks gather data in collectives; one for each node without it
//	cb_buffer_size        bytes that each of them handles at a time, as a rule: more where most of
//	                      the data is in a small part of the file; 4 MiB without it
//	collective_buffering  "true": collectives always gather data; "false": they do in atomic mode alone
//	romio_ds_write        "enable": a write may read and write again the bytes between those it
//	                      writes. Nothing else may write these at that time, with
//	                      collective_buffering "false" nor may other ranks of a collective.
//
// A new file may be read and written by all users that the umask of rank 0 permits.
//
// Errors, at all ranks: [ErrMode], [ErrInfoValue]; [ErrNotSame] if ranks give different arguments;
// [ErrNoSuchFile], [ErrFileExists], [ErrAccess], [ErrReadOnly], [ErrNoSpace]; [ErrBadFile] for what is
// no ordinary file; [ErrIO].
//
// Experimental: it may change in any release.
func FileOpen(ctx context.Context, c *Comm, name string, mode FileMode, given map[string]string) (*File, error) {
	const call = "MPI_File_open"
	if ctx == nil {
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	}
	if err := c.intra(call); err != nil {
		return nil, err
	}
	own, err := c.dup(ctx, call)
	if err != nil {
		return nil, err
	}
	own.SetName(c.Name() + " file " + name)
	f := &File{c: own, name: name, mode: mode, v: bytesView()}
	bad := mode.check(call)
	if bad == nil {
		f.hints, bad = hintsOf(call, given)
	}
	if err := f.meet(ctx, call, bad); err != nil {
		return nil, err
	}
	f.aggregators = aggregators(own.layout(), int(f.hints.aggregators))
	err = f.openAll(ctx, call)
	if err == nil {
		err = f.share(ctx, call)
	}
	if err == nil && mode&ModeAppend != 0 {
		err = f.toEnd(ctx, call)
	}
	if err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

// meet has all ranks compare their arguments.
func (f *File) meet(ctx context.Context, call string, bad error) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.name))
	mine := fileOffer{h.Sum64(), uint64(f.mode), f.hints, int64(classOf(bad))}
	all := make([]fileOffer, len(f.c.ranks))
	if err := allgatherPlan(f.c, call, []fileOffer{mine}, all).do(ctx); err != nil {
		return err
	}
	for rank, o := range all {
		switch {
		case bad != nil:
			return bad
		case o.class != 0:
			return f.others(call, rank, o.class)
		}
	}
	for rank, o := range all {
		if o != all[0] {
			return fail(call, "", ErrNotSame, "rank %d gives another name, mode or hint than rank 0", rank)
		}
	}
	return nil
}

// openAll has rank 0 open the file, and create it, and then all others.
func (f *File) openAll(ctx context.Context, call string) error {
	first := f.c.rank == 0
	var err error
	if first {
		err = f.openHere(call)
	}
	if err := f.agree(ctx, call, err); err != nil {
		return err
	}
	if !first {
		err = f.openHere(call)
	}
	err = f.agree(ctx, call, err)
	if made := ModeCreate | ModeExcl; err != nil && first && f.mode&made == made {
		err = errors.Join(err, wrapSystem(call, os.Remove(f.name))) // it was made by this call
	}
	return err
}

func (f *File) openHere(call string) error {
	st, err := os.Stat(f.name)
	if err == nil && !st.Mode().IsRegular() {
		return fail(call, "filename", ErrBadFile, "%s is no ordinary file: %v", f.name, st.Mode())
	}
	f.os, err = os.OpenFile(f.name, f.mode.flags(f.c.rank == 0), 0o666) //nolint:gosec // the umask says who may read it
	return wrapSystem(call, err)
}

// share makes the control block at rank 0, which the others import.
func (f *File) share(ctx context.Context, call string) error {
	id := []int64{0}
	var err error
	if f.c.rank == 0 {
		id[0], err = f.shareHere(call)
	}
	if err := f.agree(ctx, call, err); err != nil {
		return err
	}
	if err := bcastPlan(f.c, call, id, 0).do(ctx); err != nil {
		return err
	}
	if f.c.rank != 0 {
		im, e := f.c.j.e.Import(ctx, f.c.ranks[0], uint32(id[0]))
		if e == nil {
			f.control = farMemory{im}
		}
		err = wrapMemory(call, e)
	}
	f.lock = newMemoryLock(f.c, f.control, atomicAt, 0) // the file's communicator has no other messages
	return f.agree(ctx, call, err)
}

func (f *File) shareHere(call string) (id int64, err error) {
	p := f.c.j.e.Process()
	if p == nil { // one rank
		b, err := bytesOf(call, make([]uint64, fileControlSize(1)/8))
		f.control = ownMemory(b)
		return 0, err
	}
	var opts []vmmc.ExportOption
	if f.c.j.unmapped {
		opts = append(opts, vmmc.Unmapped())
	}
	b, err := pair.NewBuffer(p, fileControlSize(len(f.c.ranks)), nil, opts...)
	if err != nil {
		return 0, wrapMemory(call, err)
	}
	f.control, f.close = ownMemory(b.Bytes()), b.Close
	return int64(b.ID()), nil
}

// toEnd puts the file pointers at the end of the file.
func (f *File) toEnd(ctx context.Context, call string) error {
	size, err := f.size(call)
	if err == nil && f.c.rank == 0 {
		_, err = f.control.swap(ctx, 8, pointerAt, uint64(size))
		err = wrapMemory(call, err)
	}
	f.pointer = size
	return f.agree(ctx, call, err)
}

// release gives back what the file has at this rank.
func (f *File) release() error {
	var errs []error
	if f.control != nil {
		errs = append(errs, f.control.close())
	}
	if f.close != nil {
		errs = append(errs, f.close())
	}
	if f.os != nil {
		errs = append(errs, f.os.Close())
	}
	return errors.Join(errs...)
}

// enter checks that the file is open, and counts a call that is under way.
func (f *File) enter(call string, ctx context.Context) error {
	switch {
	case f == nil:
		return fail(call, "fh", ErrFile, "it is nil")
	case ctx == nil:
		return fail(call, "ctx", ErrArg, "the context is nil")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fail(call, "fh", ErrFile, "%s is closed", f.name)
	}
	f.open++
	return nil
}

func (f *File) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open--; f.open == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// verdict is what each rank tells of a step of a collective.
type verdict struct{ value, class int64 }

// same has all ranks compare a value, and say whether they have failed before. All fail if one has.
func (f *File) same(ctx context.Context, call, arg string, value int64, bad error) error {
	all := make([]verdict, len(f.c.ranks))
	if err := allgatherPlan(f.c, call, []verdict{{value, int64(classOf(bad))}}, all).do(ctx); err != nil {
		return errors.Join(bad, err)
	}
	if bad != nil {
		return bad
	}
	for rank, v := range all {
		if v.class != 0 {
			return f.others(call, rank, v.class)
		}
	}
	for rank, v := range all {
		if v.value != all[0].value {
			return fail(call, arg, ErrNotSame, "rank %d gives %d, and rank 0 gives %d", rank, v.value, all[0].value)
		}
	}
	return nil
}

// agree has all ranks fail if one has.
func (f *File) agree(ctx context.Context, call string, bad error) error {
	return f.same(ctx, call, "", 0, bad)
}

// others is the error of a collective that has failed at another rank.
func (f *File) others(call string, rank int, class int64) error {
	return fail(call, "", Class(class), "rank %d has failed: its error says why", rank)
}

// Close closes the file (MPI_File_close, chapter I/O). It is a collective. It waits for requests of
// this rank that are not over, and brings what this rank has written to the disk. With
// ModeDeleteOnClose it deletes the file.
//
// Errors: [ErrFile] if it is closed already; [ErrCanceled] while requests are not over: call it again;
// [ErrNoSpace], [ErrIO], [ErrProcFailed]: the file is closed at this rank. So it is if the context ends
// while Close waits for other ranks: calling it again is [ErrFile] then.
//
// Experimental: it may change in any release.
func (f *File) Close(ctx context.Context) (err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_close"
	if err := f.enter(call, ctx); err != nil {
		return err
	}
	f.mu.Lock()
	if f.closed { // by another goroutine since
		f.mu.Unlock()
		f.leave()
		return fail(call, "fh", ErrFile, "%s is closed", f.name)
	}
	f.closed = true
	f.open-- // this call
	var idle chan struct{}
	if f.open > 0 {
		f.idle = make(chan struct{})
		idle = f.idle
	}
	f.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			f.closed = false
			return &Error{Call: call, Arg: "ctx", Class: ErrCanceled, Err: context.Cause(ctx)}
		}
	}
	if f.dirty {
		err = wrapSystem(call, f.os.Sync())
	}
	err = f.agree(ctx, call, err) // no rank uses the control block any more
	f.c.drainWakes()
	err = errors.Join(err, wrapSystem(call, f.release()))
	if f.mode&ModeDeleteOnClose == 0 || errors.Is(err, ErrProcFailed) || errors.Is(err, ErrCanceled) {
		return err
	}
	err = errors.Join(err, barrierPlan(f.c, call).do(ctx)) // no rank has it open any more
	if f.c.rank == 0 {
		err = errors.Join(err, wrapSystem(call, os.Remove(f.name)))
	}
	return err
}

// FileDelete deletes a file (MPI_File_delete, chapter I/O). One rank calls it, when no rank has the file
// open. Errors: [ErrNoSuchFile], [ErrAccess]; [ErrBadFile] for a directory; [ErrIO].
//
// Experimental: it may change in any release.
func FileDelete(name string) error {
	const call = "MPI_File_delete"
	st, err := os.Lstat(name)
	switch {
	case err != nil:
		return wrapSystem(call, err)
	case st.IsDir():
		return fail(call, "filename", ErrBadFile, "%s is a directory", name)
	}
	return wrapSystem(call, os.Remove(name))
}

// Mode is how the file was opened (MPI_File_get_amode, chapter I/O).
//
// Experimental: it may change in any release.
func (f *File) Mode() FileMode { return f.mode }

// Group is the ranks that have the file open (MPI_File_get_group, chapter I/O).
//
// Experimental: it may change in any release.
func (f *File) Group() Group { return f.c.Group() }

// Hints are the hints that are used, with their values (MPI_File_get_info, chapter I/O). A hint that is
// not among them has no effect.
//
// Experimental: it may change in any release.
func (f *File) Hints() map[string]string {
	return map[string]string{
		hintBuffer:     strconv.FormatInt(f.hints.buffer, 10),
		hintNodes:      strconv.Itoa(len(f.aggregators)),
		hintCollective: []string{"automatic", "true", "false"}[f.hints.collective],
		hintSieve:      []string{"disable", "enable"}[f.hints.sieve],
	}
}

func (f *File) sequential(call string) error {
	return fail(call, "fh", ErrUnsupportedOperation, "%s is opened with ModeSequential: use the shared file pointer", f.name)
}

// aggregators are the ranks that gather data in collectives: one of each node in turn, until there are n.
// 0 is one for each node.
func aggregators(l *layout, n int) []int {
	if n == 0 {
		n = len(l.members)
	}
	var out []int
	for i := 0; len(out) < min(n, len(l.node)); i++ {
		for _, m := range l.members {
			if i < len(m) && len(out) < n {
				out = append(out, m[i])
			}
		}
	}
	return out
}

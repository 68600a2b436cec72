package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/vmmc-go/vmmc/mpi"
)

// inFolder runs an example with the name of a new file.
func inFolder(f func(ctx context.Context, c *mpi.Comm, name string) error) {
	dir, err := os.MkdirTemp("", "mpi")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	run(func(ctx context.Context, c *mpi.Comm) error { return f(ctx, c, filepath.Join(dir, "data")) })
}

// A checkpoint: each rank has a block of values. The file has them in the order of the ranks.
func ExampleFileOpen() {
	inFolder(func(ctx context.Context, c *mpi.Comm, name string) error {
		mine := []float64{1.5, 2.5, 3.5}
		f, err := mpi.FileOpen(ctx, c, name, mpi.ModeCreate|mpi.ModeWriteOnly, nil)
		if err != nil {
			return err
		}
		block := int64(8 * len(mine)) // offsets count bytes until SetView says otherwise
		if _, err := mpi.WriteAtAll(ctx, f, int64(c.Rank())*block, mine); err != nil {
			return err
		}
		if err := f.Close(ctx); err != nil { // brings it to the disk
			return err
		}
		if f, err = mpi.FileOpen(ctx, c, name, mpi.ModeReadOnly, nil); err != nil {
			return err
		}
		back := make([]float64, len(mine))
		st, err := mpi.ReadAtAll(ctx, f, int64(c.Rank())*block, back)
		if err != nil {
			return err
		}
		fmt.Println(back, mpi.Count[float64](st), f.Mode() == mpi.ModeReadOnly, f.Group().Size())
		return f.Close(ctx)
	})
	// Output: [1.5 2.5 3.5] 3 true 1
}

// The rows of a matrix are dealt out to the ranks in turn: rank 0 of two has rows 0, 2, 4 and so on.
func ExampleFile_SetView() {
	inFolder(func(ctx context.Context, c *mpi.Comm, name string) error {
		const rows, columns, header = 4, 3, 16
		f, err := mpi.FileOpen(ctx, c, name, mpi.ModeCreate|mpi.ModeReadWrite, nil)
		if err != nil {
			return err
		}
		value, err := mpi.TypeOf[int64]()
		if err != nil {
			return err
		}
		row, err := value.Contiguous(columns)
		if err != nil {
			return err
		}
		_, length := row.Extent()
		mine, err := row.Resized(0, length*c.Size()) // one row, and the place of those of the others
		if err != nil {
			return err
		}
		if err := f.SetView(ctx, int64(header+c.Rank()*length), value, mine); err != nil {
			return err
		}
		for i := c.Rank(); i < rows; i += c.Size() {
			if _, err := mpi.WriteAll(ctx, f, []int64{int64(i), int64(i * i), int64(i * i * i)}); err != nil {
				return err
			}
		}
		fmt.Println("the file pointer is behind", f.Position(), "values")
		if _, err := f.Seek(-columns, io.SeekEnd); err != nil {
			return err
		}
		last := make([]int64, columns)
		if _, err := mpi.ReadAll(ctx, f, last); err != nil {
			return err
		}
		disp, etype, filetype := f.View()
		at, err := f.ByteOffset(2)
		fmt.Println(last, disp, etype.Size(), filetype.Size(), at)
		return errors.Join(err, f.Close(ctx))
	})
	// Output:
	// the file pointer is behind 12 values
	// [3 9 27] 16 8 24 32
}

// Ranks write to a log, each line behind the one before. Then each reads what nobody else has read.
func ExampleWriteShared() {
	inFolder(func(ctx context.Context, c *mpi.Comm, name string) error {
		f, err := mpi.FileOpen(ctx, c, name, mpi.ModeCreate|mpi.ModeWriteOnly|mpi.ModeSequential, nil)
		if err != nil {
			return err
		}
		if _, err := mpi.WriteShared(ctx, f, []byte("a line of any rank\n")); err != nil {
			return err
		}
		q, err := mpi.IwriteShared(f, []byte("one that is not waited for\n"))
		if err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		if _, err := mpi.WriteOrdered(ctx, f, fmt.Appendf(nil, "rank %d\n", c.Rank())); err != nil { // in the order of the ranks
			return err
		}
		if err := f.Close(ctx); err != nil {
			return err
		}
		if f, err = mpi.FileOpen(ctx, c, name, mpi.ModeReadWrite|mpi.ModeAppend|mpi.ModeUniqueOpen, nil); err != nil {
			return err
		}
		end, err := f.PositionShared(ctx)
		if err != nil {
			return err
		}
		if _, err := f.SeekShared(ctx, 2, io.SeekStart); err != nil {
			return err
		}
		word, next, rest := make([]byte, 4), make([]byte, 3), make([]byte, 5)
		if _, err := mpi.ReadShared(ctx, f, word); err != nil {
			return err
		}
		if q, err = mpi.IreadShared(f, next); err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		if _, err := mpi.ReadOrdered(ctx, f, rest); err != nil {
			return err
		}
		fmt.Printf("%q %q %q of %d bytes\n", word, next, rest, end)
		return f.Close(ctx)
	})
	// Output: "line" " of" " any " of 53 bytes
}

// A rank computes while its data is written.
func ExampleIwriteAt() {
	inFolder(func(ctx context.Context, c *mpi.Comm, name string) error {
		f, err := mpi.FileOpen(ctx, c, name, mpi.ModeCreate|mpi.ModeExcl|mpi.ModeReadWrite|mpi.ModeDeleteOnClose, nil)
		if err != nil {
			return err
		}
		start := int64(c.Rank() * 100)
		a, err1 := mpi.IwriteAt(f, start, []byte("at an offset"))
		b, err2 := mpi.IwriteAtAll(f, start+20, []byte("with all ranks"))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if _, err := f.Seek(start+40, io.SeekStart); err != nil {
			return err
		}
		x, err1 := mpi.Iwrite(f, []byte("at the pointer, "))
		y, err2 := mpi.IwriteAll(f, []byte("and behind"))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if _, err := mpi.Waitall(ctx, a, b, x, y); err != nil { // the buffers are the program's again
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if _, err := f.Seek(start+40, io.SeekStart); err != nil {
			return err
		}
		bufs := [4][]byte{make([]byte, 12), make([]byte, 14), make([]byte, 16), make([]byte, 10)}
		a, err1 = mpi.IreadAt(f, start, bufs[0])
		b, err2 = mpi.IreadAtAll(f, start+20, bufs[1])
		x, err3 := mpi.Iread(f, bufs[2])
		y, err4 := mpi.IreadAll(f, bufs[3])
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return err
		}
		_, err = mpi.Waitall(ctx, a, b, x, y)
		fmt.Printf("%s\n%s\n%s%s\n", bufs[0], bufs[1], bufs[2], bufs[3])
		return errors.Join(err, f.Close(ctx))
	})
	// Output:
	// at an offset
	// with all ranks
	// at the pointer, and behind
}

// Room for a file of a known length, hints, and records that several ranks change.
func ExampleFile_SetAtomicity() {
	inFolder(func(ctx context.Context, c *mpi.Comm, name string) error {
		hints := map[string]string{"cb_nodes": "1", "cb_buffer_size": "1048576", "striping_factor": "4"}
		f, err := mpi.FileOpen(ctx, c, name, mpi.ModeCreate|mpi.ModeReadWrite, hints)
		if err != nil {
			return err
		}
		used := f.Hints()
		_, striping := used["striping_factor"] // has no effect, so it is not there
		fmt.Println(used["cb_nodes"], used["cb_buffer_size"], striping)
		if err := f.Preallocate(ctx, 1<<20); err != nil { // no write of the first MiB fails for want of room
			return err
		}
		if err := f.SetAtomicity(ctx, true); err != nil {
			return err
		}
		// Each rank writes the record whole: readers see that of one rank, and never parts of two.
		if _, err := mpi.WriteAt(ctx, f, 0, []int64{int64(c.Rank()), int64(c.Rank())}); err != nil {
			return err
		}
		record := make([]int64, 2)
		if _, err := mpi.ReadAt(ctx, f, 0, record); err != nil {
			return err
		}
		fmt.Println(f.Atomicity(), record[0] == record[1])
		if err := errors.Join(f.SetSize(ctx, 16), f.Sync(ctx)); err != nil {
			return err
		}
		size, err := f.Size()
		fmt.Println(size, "bytes")
		return errors.Join(err, f.Close(ctx))
	})
	// Output:
	// 1 1048576 false
	// true true
	// 16 bytes
}

// What goes wrong with files, and what a program does then.
func ExampleFile() {
	advice := func(err error) string {
		for class, text := range map[mpi.Class]string{
			mpi.ErrNoSuchFile: "give another name", mpi.ErrFileExists: "open without ModeExcl",
			mpi.ErrBadFile: "name an ordinary file", mpi.ErrAccess: "ask for the right to use it",
			mpi.ErrReadOnly: "open it for writing", mpi.ErrMode: "choose one of reading and writing",
			mpi.ErrNotSame: "give the same at all ranks", mpi.ErrInfoValue: "correct the hint",
			mpi.ErrNoSpace: "delete something", mpi.ErrQuota: "delete something of your own",
			mpi.ErrFileInUse: "end the program that runs from it", mpi.ErrFile: "it is closed: open it again",
			mpi.ErrUnsupportedOperation: "open without ModeSequential", mpi.ErrIO: "look at the disk",
		} {
			if errors.Is(err, class) {
				return text
			}
		}
		return "none"
	}
	inFolder(func(ctx context.Context, c *mpi.Comm, name string) error {
		_, err := mpi.FileOpen(ctx, c, name, mpi.ModeReadOnly, nil)
		fmt.Println(advice(err))
		f, err := mpi.FileOpen(ctx, c, name, mpi.ModeCreate|mpi.ModeWriteOnly, nil)
		if err != nil {
			return err
		}
		if _, err := mpi.Write(ctx, f, []int32{1, 2}); err != nil {
			return err
		}
		_, err = mpi.Read(ctx, f, []int32{0})
		fmt.Println(advice(err))
		if err := f.Close(ctx); err != nil {
			return err
		}
		fmt.Println(advice(f.Close(ctx)))
		if err := c.Barrier(ctx); err != nil || c.Rank() > 0 {
			return err
		}
		return mpi.FileDelete(name)
	})
	// Output:
	// give another name
	// ask for the right to use it
	// it is closed: open it again
}

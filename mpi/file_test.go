package mpi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("file rank", fileRank)
	vmmctest.Role("open elsewhere", openElsewhere)
}

// opened opens a file at all ranks. It is closed with the test.
func opened(t *testing.T, world []*mpi.Comm, name string, mode mpi.FileMode, hints map[string]string) []*mpi.File {
	t.Helper()
	fs := make([]*mpi.File, len(world))
	each(t, world, func(ctx context.Context, c *mpi.Comm) (err error) {
		fs[c.Rank()], err = mpi.FileOpen(ctx, c, name, mode, hints)
		return err
	})
	t.Cleanup(func() {
		if !t.Failed() {
			each(t, world, func(ctx context.Context, c *mpi.Comm) error { return fs[c.Rank()].Close(ctx) })
		}
	})
	return fs
}

// strided gives each rank every n-th record of so many bytes.
func strided(ctx context.Context, f *mpi.File, c *mpi.Comm, record int) error {
	b, err := mpi.TypeOf[byte]()
	if err != nil {
		return err
	}
	one, err := b.Contiguous(record)
	if err != nil {
		return err
	}
	mine, err := one.Resized(0, record*c.Size())
	if err != nil {
		return err
	}
	return f.SetView(ctx, int64(record*c.Rank()), b, mine)
}

// Calls that cannot be are refused with their class, and change nothing.
func TestFileArguments(t *testing.T) {
	ctx := within(t)
	c, err := mpi.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, []byte("abcdefgh"), 0o644); err != nil {
		t.Fatal(err)
	}
	open := func(name string, mode mpi.FileMode, hints ...string) error {
		given := map[string]string{}
		for i := 0; i < len(hints); i += 2 {
			given[hints[i]] = hints[i+1]
		}
		f, err := mpi.FileOpen(ctx, c, name, mode, given)
		if err == nil {
			err = f.Close(ctx)
		}
		return err
	}
	file := func(mode mpi.FileMode) *mpi.File {
		f, err := mpi.FileOpen(ctx, c, name, mode, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	call := func(st mpi.Status, err error) error {
		if err != nil && st.Bytes != 0 {
			t.Errorf("%v, and %d bytes", err, st.Bytes)
		}
		return err
	}
	begun := func(q *mpi.Request, err error) error {
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return err
	}
	const rd, wr, rw = mpi.ModeReadOnly, mpi.ModeWriteOnly, mpi.ModeReadWrite
	ro, wo, both, seq := file(rd), file(wr), file(rw), file(wr|mpi.ModeSequential)
	value, err := mpi.TypeOf[int16]()
	if err != nil {
		t.Fatal(err)
	}
	one, _ := mpi.TypeOf[byte]()
	three, _ := one.Contiguous(3)
	back, _ := value.Indexed([]int{1, 1}, []int{1, 0})
	flat, _ := value.Resized(0, 0)
	view := func(disp int64, etype, filetype mpi.Datatype) error { return both.SetView(ctx, disp, etype, filetype) }
	b := make([]byte, 2)
	at := func(_ int64, err error) error { return err }
	missing := filepath.Join(dir, "missing")
	for _, x := range []struct {
		what string
		err  error
		want mpi.Class
	}{
		{"no such file", open(missing, rd), mpi.ErrNoSuchFile},
		{"no such folder", open(filepath.Join(missing, "x"), rw|mpi.ModeCreate), mpi.ErrNoSuchFile},
		{"a folder", open(dir, rd), mpi.ErrBadFile},
		{"a device", open("/dev/null", rw), mpi.ErrBadFile},
		{"a file as a folder", open(filepath.Join(name, "x"), rd), mpi.ErrBadFile},
		{"a long name", open(filepath.Join(dir, string(make([]byte, 300))), rd), mpi.ErrIO},
		{"a longer name", open(filepath.Join(dir, string(bytes.Repeat([]byte("n"), 300))), rd), mpi.ErrBadFile},
		{"it exists", open(name, rw|mpi.ModeCreate|mpi.ModeExcl), mpi.ErrFileExists},
		{"it exists, and may", open(name, rw|mpi.ModeCreate), 0},
		{"no way to open", open(name, 0), mpi.ErrMode},
		{"two ways to open", open(name, rd|wr), mpi.ErrMode},
		{"an unknown mode", open(name, rd|1<<20), mpi.ErrMode},
		{"create to read", open(missing, rd|mpi.ModeCreate), mpi.ErrMode},
		{"sequential and both", open(name, rw|mpi.ModeSequential), mpi.ErrMode},
		{"a hint that is no number", open(name, rd, "cb_nodes", "many"), mpi.ErrInfoValue},
		{"a hint below", open(name, rd, "cb_buffer_size", "0"), mpi.ErrInfoValue},
		{"a hint that is no word", open(name, rd, "collective_buffering", "yes"), mpi.ErrInfoValue},
		{"a hint that is ignored", open(name, rd, "striping_unit", "?"), 0},
		{"read what is to write", call(mpi.ReadAt(ctx, wo, 0, b)), mpi.ErrAccess},
		{"write what is to read", call(mpi.WriteAt(ctx, ro, 0, b)), mpi.ErrReadOnly},
		{"write together what is to read", call(mpi.WriteAtAll(ctx, ro, 0, b)), mpi.ErrReadOnly},
		{"begin to write what is to read", begun(mpi.IwriteAll(ro, b)), mpi.ErrReadOnly},
		{"the length of what is to read", ro.SetSize(ctx, 1), mpi.ErrReadOnly},
		{"an offset below", call(mpi.ReadAt(ctx, ro, -1, b)), mpi.ErrArg},
		{"an offset beyond", call(mpi.ReadAt(ctx, ro, 1<<63-1, b)), mpi.ErrArg},
		{"beyond the end", call(mpi.ReadAt(ctx, ro, 1<<40, b)), 0},
		{"begin below", begun(mpi.IreadAt(ro, -1, b)), mpi.ErrArg},
		{"a pointer", call(mpi.ReadAt(ctx, ro, 0, []*int{nil})), mpi.ErrType},
		{"no context", call(mpi.ReadAt(nil, ro, 0, b)), mpi.ErrArg}, //nolint:staticcheck // that is the test
		{"no file", call(mpi.ReadAt(ctx, nil, 0, b)), mpi.ErrFile},
		{"at an offset, but sequential", call(mpi.WriteAt(ctx, seq, 0, b)), mpi.ErrUnsupportedOperation},
		{"seek, but sequential", at(seq.Seek(0, 0)), mpi.ErrUnsupportedOperation},
		{"seek before", at(ro.Seek(-1, io.SeekStart)), mpi.ErrArg},
		{"seek from nowhere", at(ro.Seek(0, 9)), mpi.ErrArg},
		{"seek together before", at(ro.SeekShared(ctx, -1, io.SeekEnd-1)), mpi.ErrArg},
		{"a length below", both.SetSize(ctx, -1), mpi.ErrArg},
		{"room below", both.Preallocate(ctx, -1), mpi.ErrArg},
		{"a view before", view(-1, value, value), mpi.ErrArg},
		{"a view beyond", view(1<<63-1, value, value), mpi.ErrArg},
		{"a view of nothing", view(0, value, mpi.Datatype{}), mpi.ErrType},
		{"items of nothing", view(0, mpi.Datatype{}, value), mpi.ErrType},
		{"items that do not fit", view(0, value, three), mpi.ErrType},
		{"a view backwards", view(0, value, back), mpi.ErrType},
		{"a view in place", view(0, value, flat), mpi.ErrType},
		{"a view", view(0, value, value), 0},
		{"no whole item", call(mpi.WriteAt(ctx, both, 0, b[:1])), mpi.ErrType},
		{"byte offset below", at(both.ByteOffset(-1)), mpi.ErrArg},
		{"close", errors.Join(ro.Close(ctx), wo.Close(ctx), both.Close(ctx), seq.Close(ctx)), 0},
		{"close twice", ro.Close(ctx), mpi.ErrFile},
		{"read a closed one", call(mpi.Read(ctx, ro, b)), mpi.ErrFile},
		{"begin to read a closed one", begun(mpi.Iread(ro, b)), mpi.ErrFile},
		{"size of a closed one", at(ro.Size()), mpi.ErrFile},
		{"sync of a closed one", ro.Sync(ctx), mpi.ErrFile},
		{"delete what is not there", mpi.FileDelete(missing), mpi.ErrNoSuchFile},
		{"delete a folder", mpi.FileDelete(dir), mpi.ErrBadFile},
	} {
		if x.want == 0 && x.err != nil || x.want != 0 && !errors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %v", x.what, x.err, x.want)
		}
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "abcdefgh" {
		t.Errorf("the file is %q: %v", got, err)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
	if err := open(name, rw|mpi.ModeDeleteOnClose); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there after a close that deletes it: %v", err)
	}
	if err := c.Finalize(ctx); err != nil {
		t.Error(err)
	}
}

// An error of one rank's arguments is an error at all, and changes nothing. The file can be used on.
func TestFileErrorsAtAllRanks(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 3
			world := job(t, w, size)
			dir := t.TempDir()
			name := filepath.Join(dir, "file")
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				last := c.Rank() == size-1
				mode, hints := mpi.ModeReadWrite|mpi.ModeCreate, map[string]string{}
				if last {
					hints["cb_nodes"] = "2"
				}
				if _, err := mpi.FileOpen(ctx, c, name, mode, hints); !errors.Is(err, mpi.ErrNotSame) {
					return fmt.Errorf("another hint: %w", err)
				}
				if last {
					mode = mpi.ModeReadOnly | mpi.ModeWriteOnly
				}
				if _, err := mpi.FileOpen(ctx, c, name, mode, nil); !errors.Is(err, mpi.ErrMode) {
					return fmt.Errorf("no mode at one rank: %w", err)
				}
				if _, err := mpi.FileOpen(ctx, c, fmt.Sprint(name, last), mpi.ModeReadWrite|mpi.ModeCreate, nil); !errors.Is(err, mpi.ErrNotSame) {
					return fmt.Errorf("another name: %w", err)
				}
				if _, err := mpi.FileOpen(ctx, c, name, mpi.ModeReadOnly, nil); !errors.Is(err, mpi.ErrNoSuchFile) {
					return fmt.Errorf("no such file: %w", err)
				}
				return nil
			})
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Fatalf("%v were made: %v", left, err)
			}
			fs := opened(t, world, name, mpi.ModeReadWrite|mpi.ModeCreate, map[string]string{"collective_buffering": "true"})
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				f, last := fs[c.Rank()], c.Rank() == size-1
				one := []int64{int64(c.Rank()) + 1}
				off := int64(8 * c.Rank())
				if last {
					off = -1
				}
				st, err := mpi.WriteAtAll(ctx, f, off, one)
				if !errors.Is(err, mpi.ErrArg) || st.Bytes != 0 {
					return fmt.Errorf("an offset below at one rank: %d bytes, %w", st.Bytes, err)
				}
				q, err := mpi.IwriteAtAll(f, off, one)
				if err != nil {
					return err
				}
				if _, err := q.Wait(ctx); !errors.Is(err, mpi.ErrArg) {
					return fmt.Errorf("a request with an offset below at one rank: %w", err)
				}
				b, _ := mpi.TypeOf[byte]()
				v, _ := mpi.TypeOf[int64]()
				if last {
					v = b
				}
				if err := f.SetView(ctx, 0, v, v); !errors.Is(err, mpi.ErrNotSame) {
					return fmt.Errorf("items of another size: %w", err)
				}
				if err := f.SetSize(ctx, off); !errors.Is(err, mpi.ErrArg) {
					return fmt.Errorf("a length below at one rank: %w", err)
				}
				if err := f.SetSize(ctx, int64(c.Rank())); !errors.Is(err, mpi.ErrNotSame) {
					return fmt.Errorf("other lengths: %w", err)
				}
				if err := f.SetAtomicity(ctx, last); !errors.Is(err, mpi.ErrNotSame) {
					return fmt.Errorf("another mode: %w", err)
				}
				if _, err := f.SeekShared(ctx, int64(c.Rank()), io.SeekStart); !errors.Is(err, mpi.ErrNotSame) {
					return fmt.Errorf("other places: %w", err)
				}
				if n, err := f.Size(); n != 0 || err != nil {
					return fmt.Errorf("the file has %d bytes: %w", n, err)
				}
				if st, err := mpi.WriteAtAll(ctx, f, int64(8*c.Rank()), one); err != nil || st.Bytes != 8 {
					return fmt.Errorf("a write afterwards: %d bytes: %w", st.Bytes, err)
				}
				return nil
			})
			if got, err := os.ReadFile(name); err != nil || len(got) != 8*size {
				t.Errorf("the file has %d bytes: %v", len(got), err)
			}
		})
	}
}

// Records that all ranks write at the shared file pointer, from several goroutines, are whole, and each
// is there once. Each is read once.
func TestSharedPointer(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size, threads, times = 4, 3, 20
			type record struct{ Rank, Thread, Time, Again int32 }
			world := job(t, w, size)
			name := filepath.Join(t.TempDir(), "file")
			fs := opened(t, world, name, mpi.ModeReadWrite|mpi.ModeCreate, nil)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				d, err := mpi.TypeOf[record]()
				if err != nil {
					return err
				}
				return fs[c.Rank()].SetView(ctx, 5, d, d)
			})
			everyThread := func(do func(ctx context.Context, f *mpi.File, rank, thread, time int) error) {
				each(t, world, func(ctx context.Context, c *mpi.Comm) error {
					errs := make([]error, threads)
					var wg sync.WaitGroup
					for thread := range threads {
						wg.Go(func() {
							for time := range times {
								if err := do(ctx, fs[c.Rank()], c.Rank(), thread, time); err != nil {
									errs[thread] = err
									return
								}
							}
						})
					}
					wg.Wait()
					return errors.Join(errs...)
				})
			}
			everyThread(func(ctx context.Context, f *mpi.File, rank, thread, time int) error {
				_, err := mpi.WriteShared(ctx, f, []record{{int32(rank), int32(thread), int32(time), int32(rank)}})
				return err
			})
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				to, err := fs[c.Rank()].SeekShared(ctx, 0, io.SeekStart)
				if to != 0 {
					return errWrong
				}
				return err
			})
			var mu sync.Mutex
			seen := map[record]int{}
			everyThread(func(ctx context.Context, f *mpi.File, _, _, _ int) error {
				got := make([]record, 1)
				st, err := mpi.ReadShared(ctx, f, got)
				if err == nil && st.Bytes != 16 {
					err = errWrong
				}
				mu.Lock()
				defer mu.Unlock()
				seen[got[0]]++
				return err
			})
			for rank := range int32(size) {
				for thread := range int32(threads) {
					for time := range int32(times) {
						if n := seen[record{rank, thread, time, rank}]; n != 1 {
							t.Fatalf("record %d of thread %d of rank %d was read %d times", time, thread, rank, n)
						}
					}
				}
			}
		})
	}
}

// In atomic mode writes of many pieces that all ranks make in one place are whole: a reader finds those
// of one rank.
func TestFileAtomicity(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size, pieces, times = 3, 600, 12
			world := job(t, w, size)
			fs := opened(t, world, filepath.Join(t.TempDir(), "file"), mpi.ModeReadWrite|mpi.ModeCreate, nil)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				f := fs[c.Rank()]
				b, err := mpi.TypeOf[byte]()
				if err != nil {
					return err
				}
				far, err := b.Resized(0, 8192) // pieces are apart, so that no system call moves two of them
				if err != nil {
					return err
				}
				if err := errors.Join(f.SetView(ctx, 0, b, far), f.SetAtomicity(ctx, true)); err != nil {
					return err
				}
				if _, err := mpi.WriteAtAll(ctx, f, 0, make([]byte, pieces)); err != nil {
					return err
				}
				got := make([]byte, pieces)
				for i := range times {
					if _, err := mpi.WriteAt(ctx, f, 0, bytes.Repeat([]byte{byte(size*i + c.Rank())}, pieces)); err != nil {
						return err
					}
					if st, err := mpi.ReadAt(ctx, f, 0, got); err != nil || st.Bytes != pieces {
						return fmt.Errorf("%d bytes: %w", st.Bytes, err)
					}
					if at := slices.IndexFunc(got, func(b byte) bool { return b != got[0] }); at >= 0 {
						return fmt.Errorf("time %d: byte %d is %d, and the first one %d", i, at, got[at], got[0])
					}
				}
				// A collective beside calls of other goroutines is one call after another too.
				q, err := mpi.IwriteAtAll(f, 0, bytes.Repeat([]byte{byte(100 + c.Rank())}, pieces))
				if err != nil {
					return err
				}
				if _, err := mpi.ReadAt(ctx, f, 0, got); err != nil {
					return err
				}
				if at := slices.IndexFunc(got, func(b byte) bool { return b != got[0] }); at >= 0 {
					return fmt.Errorf("byte %d is %d, and the first one %d", at, got[at], got[0])
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
				_, err = mpi.ReadAt(ctx, f, 0, got)
				return errors.Join(err, differs("the last rank's", got, bytes.Repeat([]byte{100 + size - 1}, pieces)))
			})
		})
	}
}

// Parts that interleave over many gigabytes cost no rounds for what lies between them.
func TestFileSparse(t *testing.T) {
	const size, items = 3, 40
	world := job(t, ways[0], size)
	name := filepath.Join(t.TempDir(), "file")
	fs := opened(t, world, name, mpi.ModeReadWrite|mpi.ModeCreate, map[string]string{"cb_buffer_size": "1", "cb_nodes": "2"})
	each(t, world, func(ctx context.Context, c *mpi.Comm) error {
		v, err := mpi.TypeOf[int64]()
		if err != nil {
			return err
		}
		far, err := v.Resized(0, 1<<28)
		if err != nil {
			return err
		}
		f := fs[c.Rank()]
		if err := f.SetView(ctx, int64(8*c.Rank()), v, far); err != nil {
			return err
		}
		mine, got := values(c.Rank()+5, items), make([]int64, items)
		if _, err := mpi.WriteAtAll(ctx, f, 1, mine); err != nil {
			return err
		}
		if st, err := mpi.ReadAtAll(ctx, f, 1, got); err != nil || st.Bytes != 8*items {
			return fmt.Errorf("%d bytes: %w", st.Bytes, err)
		}
		return differs("values", got, mine)
	})
	st, err := os.Stat(name)
	if err != nil || st.Size() != items<<28+8*size {
		t.Errorf("the file has %v bytes: %v", st.Size(), err)
	}
}

// Requests that are begun and not waited for are over when Close has returned.
func TestFileCloseWaits(t *testing.T) {
	const size, n = 2, 1 << 16
	world := job(t, ways[0], size)
	name := filepath.Join(t.TempDir(), "file")
	var qs [size]*mpi.Request
	each(t, world, func(ctx context.Context, c *mpi.Comm) error {
		f, err := mpi.FileOpen(ctx, c, name, mpi.ModeReadWrite|mpi.ModeCreate, nil)
		if err != nil {
			return err
		}
		if err := strided(ctx, f, c, 16); err != nil {
			return err
		}
		if qs[c.Rank()], err = mpi.IwriteAtAll(f, 0, bytes.Repeat([]byte{byte(c.Rank() + 1)}, n)); err != nil {
			return err
		}
		if err := f.Close(ctx); err != nil {
			return err
		}
		st, ok, err := qs[c.Rank()].Test()
		if !ok || st.Bytes != n {
			return fmt.Errorf("over %v, %d bytes: %w", ok, st.Bytes, err)
		}
		return err
	})
	got, err := os.ReadFile(name)
	if err != nil || len(got) != size*n {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	for i, b := range got {
		if b != byte(i/16%size+1) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

// fileRank writes a file together with the others until it is killed.
func fileRank(ctx context.Context, p *vmmc.Process, args ...string) error {
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	c, err := mpi.Init(ctx, mpi.WithGroup(p, g), mpi.WithModule(args[0]))
	if err != nil {
		return err
	}
	f, err := mpi.FileOpen(ctx, c, args[1], mpi.ModeReadWrite|mpi.ModeCreate, nil)
	if err != nil {
		return err
	}
	_, err = writeOn(ctx, f, c, func(round int) {
		if round == 20 {
			fmt.Println("writes")
		}
	})
	return err
}

const (
	fileRecord = 64
	fileRound  = 1 << 16 // bytes of each rank
)

// writeOn writes rounds of bytes that say which round it is, until there is an error. The rounds lie in
// one place, each over the one before.
func writeOn(ctx context.Context, f *mpi.File, c *mpi.Comm, done func(round int)) (int, error) {
	if err := strided(ctx, f, c, fileRecord); err != nil {
		return 0, err
	}
	for round := 1; ; round++ {
		if _, err := mpi.WriteAtAll(ctx, f, 0, bytes.Repeat([]byte{byte(round)}, fileRound)); err != nil {
			return round, err
		}
		done(round)
	}
}

// A rank is killed while all write together. The others fail, and each byte is of the last whole round,
// or of the one that has failed. They use the file on.
func TestKilledInFileWrite(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 3
			name := filepath.Join(t.TempDir(), "file")
			nodes := vmmctest.Nodes(t, w.nodes)
			id := make([]byte, 16)
			_, _ = rand.Read(id)
			text := "1:" + hex.EncodeToString(id) + ":n1*3"
			if w.nodes == 2 {
				text = "1:" + hex.EncodeToString(id) + ":n1*1,n2*2"
			}
			t.Setenv(nodeproto.GroupEnv, text)
			t.Setenv(nodeproto.SizeEnv, strconv.Itoa(size))
			cs, gs, ps := make([]*mpi.Comm, size-1), make([]*group.Group, size-1), make([]*vmmc.Process, size-1)
			for rank := range cs {
				t.Setenv(nodeproto.RankEnv, strconv.Itoa(rank))
				ps[rank] = nodes[min(rank, w.nodes-1)].Open(t)
				var err error
				if gs[rank], err = group.Join(within(t), ps[rank]); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv(nodeproto.RankEnv, strconv.Itoa(size-1))
			child := vmmctest.Child(t, nodes[w.nodes-1], "file rank", w.module, name)
			fs, errs := make([]*mpi.File, size-1), make([]error, size-1)
			var last atomic.Int64
			var wg sync.WaitGroup
			for rank, g := range gs {
				wg.Go(func() {
					var err error
					if cs[rank], err = mpi.Init(within(t), mpi.WithGroup(ps[rank], g), mpi.WithModule(w.module)); err == nil {
						fs[rank], err = mpi.FileOpen(within(t), cs[rank], name, mpi.ModeReadWrite|mpi.ModeCreate, nil)
					}
					if err != nil {
						t.Error(err)
						return
					}
					_, errs[rank] = writeOn(within(t), fs[rank], cs[rank], func(round int) {
						for was := last.Load(); was < int64(round) && !last.CompareAndSwap(was, int64(round)); {
							was = last.Load()
						}
					})
				})
			}
			if got := child.Line(); got != "writes" {
				t.Fatal(got)
			}
			child.Kill()
			wg.Wait()
			if t.Failed() {
				t.FailNow()
			}
			for rank, err := range errs {
				if !errors.Is(err, mpi.ErrProcFailed) {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			got, err := os.ReadFile(name)
			if err != nil || len(got) != size*fileRound {
				t.Fatalf("%d bytes: %v", len(got), err)
			}
			// A rank that has done a round was answered by the aggregators that have its bytes alone. So the
			// others' bytes may be of the round before.
			whole := last.Load() - 1
			for i, b := range got {
				if age := b - byte(whole); age > 2 {
					t.Fatalf("byte %d is of round %d, and the last whole one was %d", i, b, whole)
				}
			}
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				f := fs[c.Rank()]
				if _, err := mpi.WriteAt(ctx, f, 0, bytes.Repeat([]byte{200}, fileRound)); err != nil {
					return fmt.Errorf("a write of a living rank: %w", err)
				}
				if _, err := mpi.WriteShared(ctx, f, []byte{201}); err != nil {
					return fmt.Errorf("a write at the shared pointer of a living rank: %w", err)
				}
				return nil
			})
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				f := fs[c.Rank()]
				if err := f.Sync(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("sync: %w", err)
				}
				if err := f.Close(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("close: %w", err)
				}
				if err := f.Close(ctx); !errors.Is(err, mpi.ErrFile) {
					return fmt.Errorf("close twice: %w", err)
				}
				if err := c.Finalize(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("finalize: %w", err)
				}
				return nil
			})
			if now, err := os.ReadFile(name); err != nil || now[2*fileRecord] != got[2*fileRecord] || now[fileRecord-1] != 200 {
				t.Errorf("the living ranks' writes are not there: %v", err)
			}
			for _, g := range gs {
				_ = g.Leave(within(t))
			}
		})
	}
}

// A collective whose parts are as far apart as can be moves each of them, or fails.
func TestFileFarApart(t *testing.T) {
	for aggregators := range 2 {
		t.Run(fmt.Sprint(aggregators+1), func(t *testing.T) {
			world := job(t, ways[0], 2)
			name := filepath.Join(t.TempDir(), "file")
			fs := opened(t, world, name, mpi.ModeReadWrite|mpi.ModeCreate, map[string]string{
				"collective_buffering": "true", "cb_nodes": strconv.Itoa(aggregators + 1),
			})
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				off := int64(0)
				if c.Rank() == 1 {
					off = math.MaxInt64 - 1000 // no file system has files as long
				}
				st, err := mpi.WriteAtAll(ctx, fs[c.Rank()], off, []byte("12345678"))
				if c.Rank() == 1 && err == nil {
					return fmt.Errorf("%d bytes were written at %d", st.Bytes, off)
				}
				if c.Rank() == 0 && err == nil && st.Bytes != 8 {
					return fmt.Errorf("%d bytes were written", st.Bytes)
				}
				return nil
			})
			if got, err := os.ReadFile(name); err != nil || string(got) != "12345678" {
				t.Errorf("the file has %q: %v", got, err)
			}
		})
	}
}

// A call without a wait takes its place at the shared file pointer before later ones.
func TestIwriteSharedInOrder(t *testing.T) {
	world := job(t, ways[0], 1)
	name := filepath.Join(t.TempDir(), "file")
	fs := opened(t, world, name, mpi.ModeReadWrite|mpi.ModeCreate, nil)
	ctx := within(t)
	const n = 500
	for i := range n {
		q, err := mpi.IwriteShared(fs[0], []byte{byte(2 * i)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mpi.WriteShared(ctx, fs[0], []byte{byte(2*i + 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil || len(got) != 2*n {
		t.Fatalf("%d bytes: %v", len(got), err)
	}
	for i, b := range got {
		if b != byte(i) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

// openElsewhere opens a file below another directory.
func openElsewhere(ctx context.Context, p *vmmc.Process, args ...string) error {
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	c, err := mpi.Init(ctx, mpi.WithGroup(p, g))
	if err != nil {
		return err
	}
	_, err = mpi.FileOpen(ctx, c, "file", mpi.ModeReadWrite|mpi.ModeExcl, nil)
	fmt.Println(errors.Is(err, mpi.ErrNoSuchFile))
	return errors.Join(c.Finalize(ctx), g.Leave(ctx))
}

// A file that was there stays when another rank cannot open it.
func TestFileIsLeft(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	t.Setenv(nodeproto.GroupEnv, "1:"+hex.EncodeToString(id)+":n1*2")
	t.Setenv(nodeproto.SizeEnv, "2")
	t.Setenv(nodeproto.RankEnv, "0")
	p := node.Open(t)
	g, err := group.Join(within(t), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(nodeproto.RankEnv, "1")
	child := vmmctest.Child(t, node, "open elsewhere", t.TempDir())
	ctx := within(t)
	c, err := mpi.Init(ctx, mpi.WithGroup(p, g))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mpi.FileOpen(ctx, c, "file", mpi.ModeReadWrite|mpi.ModeExcl, nil); !errors.Is(err, mpi.ErrNoSuchFile) {
		t.Errorf("another rank has no such file: %v", err)
	}
	if got := child.Line(); got != "true" {
		t.Error(got)
	}
	if b, err := os.ReadFile("file"); err != nil || string(b) != "data" {
		t.Errorf("the file has %q: %v", b, err)
	}
	if err := errors.Join(c.Finalize(ctx), g.Leave(ctx)); err != nil {
		t.Error(err)
	}
}

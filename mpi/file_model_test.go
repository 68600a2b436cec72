package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// fileView is the model of a rank's view: the places of an item's bytes.
type fileView struct {
	disp, extent int64
	etype        int
	places       []int64
	file, elem   mpi.Datatype
}

// offset is where a byte of the view lies.
func (v *fileView) offset(pos int64) int64 {
	n := int64(len(v.places))
	return v.disp + pos/n*v.extent + v.places[pos%n]
}

// offsets are where n bytes from an item on lie.
func (v *fileView) offsets(off int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v.offset(off*int64(v.etype) + int64(i))
	}
	return out
}

// end is the first item from which on no byte lies in a file.
func (v *fileView) end(size int64) int64 {
	last := int64(-1)
	// Each item begins further on than the one before it.
	for item := int64(0); v.disp+item*v.extent+v.places[0] < size; item++ {
		for i := range v.places {
			if pos := item*int64(len(v.places)) + int64(i); v.offset(pos) < size {
				last = max(last, pos)
			}
		}
	}
	return (last + int64(v.etype)) / int64(v.etype)
}

// drawView draws a view whose items have up to three runs.
func drawView(rt *rapid.T, etype int) fileView {
	small := rapid.IntRange(0, 12)
	v := fileView{disp: int64(small.Draw(rt, "displacement")), etype: etype}
	var lengths, displs []int
	at := 0
	for range rapid.IntRange(1, 3).Draw(rt, "runs") {
		at += small.Draw(rt, "gap")
		k := rapid.IntRange(1, 3).Draw(rt, "length")
		lengths, displs = append(lengths, k), append(displs, at)
		for i := range k * etype {
			v.places = append(v.places, int64(at+i))
		}
		at += k * etype
	}
	extent := at + small.Draw(rt, "pad")
	if rapid.IntRange(0, 3).Draw(rt, "interleave") == 0 {
		extent = rapid.IntRange(1, at).Draw(rt, "extent") // items begin before the one before has ended
	}
	v.extent = int64(extent)
	b, err := mpi.TypeOf[byte]()
	if err == nil {
		v.elem, err = b.Contiguous(etype)
	}
	if err == nil {
		v.file, err = mpi.StructOf(lengths, displs, slices.Repeat([]mpi.Datatype{v.elem}, len(lengths)))
	}
	if err == nil {
		v.file, err = v.file.Resized(0, extent)
	}
	if err != nil {
		rt.Fatal(err)
	}
	return v
}

// fileStep is one step of a program: what each rank calls, and what it finds.
type fileStep struct {
	what    string
	inTurns bool // the ranks call one after another
	do      func(ctx context.Context, f *mpi.File, rank int) error
}

// fileModel is the model of a file and of what the ranks know about it.
type fileModel struct {
	rt      *rapid.T
	size    int
	etype   int
	alike   bool // reports whether all ranks have the same view
	views   []fileView
	pointer []int64
	shared  int64
	content []byte
	salt    byte
	sieve   bool
	never   bool // reports whether collectives gather no data but in atomic mode
	atomic  bool
	steps   []fileStep
}

func (m *fileModel) add(what string, do func(ctx context.Context, f *mpi.File, rank int) error) {
	m.steps = append(m.steps, fileStep{what: what, do: do})
}

func (m *fileModel) resize(n int) {
	if n <= len(m.content) {
		m.content = m.content[:n:n]
	} else {
		m.content = append(m.content, make([]byte, n-len(m.content))...)
	}
}

// view has all ranks take new views.
func (m *fileModel) view() {
	m.etype = rapid.IntRange(1, 4).Draw(m.rt, "elementary item")
	m.alike = rapid.Bool().Draw(m.rt, "the same view")
	m.views = make([]fileView, m.size)
	for i := range m.views {
		if i > 0 && m.alike {
			m.views[i] = m.views[0]
		} else {
			m.views[i] = drawView(m.rt, m.etype)
		}
		m.pointer[i] = 0
	}
	m.shared = 0
	views := m.views
	m.add("set view", func(ctx context.Context, f *mpi.File, rank int) error {
		v := views[rank]
		if err := f.SetView(ctx, v.disp, v.elem, v.file); err != nil {
			return err
		}
		if at, err := f.ByteOffset(3); err != nil || at != v.offset(3*int64(v.etype)) {
			return fmt.Errorf("byte offset %d: %w", at, err)
		}
		return nil
	})
}

// move draws reads or writes of all ranks.
func (m *fileModel) move() {
	rt := m.rt
	kinds := []string{"at", "own"}
	if m.alike {
		kinds = append(kinds, "shared")
	}
	kind := rapid.SampledFrom(kinds).Draw(rt, "pointer")
	all, write := rapid.Bool().Draw(rt, "collective"), rapid.Bool().Draw(rt, "write")
	request := rapid.Bool().Draw(rt, "request") && (kind != "shared" || !all)
	offs, bufs := make([]int64, m.size), make([][]byte, m.size)
	places := make([][]int64, m.size)
	next := m.shared
	count := map[int64]int{}
	apart := true
	for rank := range bufs {
		n := m.etype * rapid.IntRange(0, 9).Draw(rt, "items")
		offs[rank] = int64(rapid.IntRange(0, 12).Draw(rt, "offset"))
		switch kind {
		case "own":
			offs[rank] = m.pointer[rank]
		case "shared":
			offs[rank] = next
		}
		next += int64(n / m.etype)
		bufs[rank] = make([]byte, n)
		places[rank] = m.views[rank].offsets(offs[rank], n)
		own := map[int64]bool{}
		for _, at := range places[rank] {
			if own[at] {
				write = false // items overlap: then nobody knows which bytes count
			}
			own[at] = true
			if count[at]++; count[at] > 1 {
				apart = false
			}
		}
	}
	if all && m.never && !m.atomic && !apart {
		write = false
	}
	// Results of calls that touch the same bytes depend on the order of the ranks, as the shared file
	// pointer does.
	turns := !all && (kind == "shared" || write && (!apart || m.sieve))
	for rank, b := range bufs {
		if kind == "own" {
			m.pointer[rank] += int64(len(b) / m.etype)
		}
		if !write {
			continue
		}
		for i, at := range places[rank] {
			m.salt++
			b[i] = m.salt
			if int(at) >= len(m.content) {
				m.resize(int(at) + 1)
			}
			m.content[at] = b[i]
		}
	}
	if kind == "shared" {
		m.shared = next
	}
	want, whole := make([][]byte, m.size), slices.Clone(bufs)
	for rank, b := range bufs {
		want[rank] = b
		if write {
			continue
		}
		want[rank] = nil
		for _, at := range places[rank] {
			if int(at) >= len(m.content) {
				break
			}
			want[rank] = append(want[rank], m.content[at])
		}
	}
	what := fmt.Sprintf("write %v, collective %v, pointer %s, request %v", write, all, kind, request)
	m.steps = append(m.steps, fileStep{what, turns, func(ctx context.Context, f *mpi.File, rank int) error {
		st, err := transfer(ctx, f, kind, all, write, request, offs[rank], whole[rank])
		if err != nil {
			return err
		}
		if st.Bytes != len(want[rank]) {
			return fmt.Errorf("%d bytes, want %d of %d", st.Bytes, len(want[rank]), len(whole[rank]))
		}
		return differs("buffer", whole[rank][:st.Bytes], want[rank])
	}})
}

// transfer does a call.
func transfer(ctx context.Context, f *mpi.File, kind string, all, write, request bool, off int64, b []byte) (mpi.Status, error) {
	pick := func(read, written func() (mpi.Status, error)) (mpi.Status, error) {
		if write {
			return written()
		}
		return read()
	}
	if request {
		var q *mpi.Request
		var err error
		call := map[string][2]func() (*mpi.Request, error){
			"at false":     {func() (*mpi.Request, error) { return mpi.IreadAt(f, off, b) }, func() (*mpi.Request, error) { return mpi.IwriteAt(f, off, b) }},
			"at true":      {func() (*mpi.Request, error) { return mpi.IreadAtAll(f, off, b) }, func() (*mpi.Request, error) { return mpi.IwriteAtAll(f, off, b) }},
			"own false":    {func() (*mpi.Request, error) { return mpi.Iread(f, b) }, func() (*mpi.Request, error) { return mpi.Iwrite(f, b) }},
			"own true":     {func() (*mpi.Request, error) { return mpi.IreadAll(f, b) }, func() (*mpi.Request, error) { return mpi.IwriteAll(f, b) }},
			"shared false": {func() (*mpi.Request, error) { return mpi.IreadShared(f, b) }, func() (*mpi.Request, error) { return mpi.IwriteShared(f, b) }},
		}[fmt.Sprint(kind, " ", all)]
		if write {
			q, err = call[1]()
		} else {
			q, err = call[0]()
		}
		if err != nil {
			return mpi.Status{}, err
		}
		return q.Wait(ctx)
	}
	switch fmt.Sprint(kind, " ", all) {
	case "at false":
		return pick(func() (mpi.Status, error) { return mpi.ReadAt(ctx, f, off, b) }, func() (mpi.Status, error) { return mpi.WriteAt(ctx, f, off, b) })
	case "at true":
		return pick(func() (mpi.Status, error) { return mpi.ReadAtAll(ctx, f, off, b) }, func() (mpi.Status, error) { return mpi.WriteAtAll(ctx, f, off, b) })
	case "own false":
		return pick(func() (mpi.Status, error) { return mpi.Read(ctx, f, b) }, func() (mpi.Status, error) { return mpi.Write(ctx, f, b) })
	case "own true":
		return pick(func() (mpi.Status, error) { return mpi.ReadAll(ctx, f, b) }, func() (mpi.Status, error) { return mpi.WriteAll(ctx, f, b) })
	case "shared false":
		return pick(func() (mpi.Status, error) { return mpi.ReadShared(ctx, f, b) }, func() (mpi.Status, error) { return mpi.WriteShared(ctx, f, b) })
	}
	return pick(func() (mpi.Status, error) { return mpi.ReadOrdered(ctx, f, b) }, func() (mpi.Status, error) { return mpi.WriteOrdered(ctx, f, b) })
}

// seek moves the file pointers.
func (m *fileModel) seek() {
	whence := rapid.IntRange(io.SeekStart, io.SeekEnd).Draw(m.rt, "whence")
	off := int64(rapid.IntRange(-3, 9).Draw(m.rt, "by"))
	to := func(v *fileView, now int64) (int64, bool) {
		at := off
		switch whence {
		case io.SeekCurrent:
			at += now
		case io.SeekEnd:
			at += v.end(int64(len(m.content)))
		}
		if at < 0 {
			return now, false
		}
		return at, true
	}
	if m.alike && rapid.Bool().Draw(m.rt, "shared pointer") {
		want, ok := to(&m.views[0], m.shared)
		m.shared = want
		m.add("seek shared", func(ctx context.Context, f *mpi.File, _ int) error {
			_, err := f.SeekShared(ctx, off, whence)
			if ok != (err == nil) || !ok && !errors.Is(err, mpi.ErrArg) {
				return fmt.Errorf("want success %v: %w", ok, err)
			}
			if at, err := f.PositionShared(ctx); err != nil || at != want {
				return fmt.Errorf("position %d, want %d: %w", at, want, err)
			}
			return nil
		})
		return
	}
	want, oks := make([]int64, m.size), make([]bool, m.size)
	for rank := range want {
		want[rank], oks[rank] = to(&m.views[rank], m.pointer[rank])
		m.pointer[rank] = want[rank]
	}
	m.add("seek", func(_ context.Context, f *mpi.File, rank int) error {
		_, err := f.Seek(off, whence)
		if oks[rank] != (err == nil) || !oks[rank] && !errors.Is(err, mpi.ErrArg) {
			return fmt.Errorf("want success %v: %w", oks[rank], err)
		}
		if at := f.Position(); at != want[rank] {
			return fmt.Errorf("position %d, want %d", at, want[rank])
		}
		return nil
	})
}

// length changes the length of the file.
func (m *fileModel) length() {
	n := int64(rapid.IntRange(0, 300).Draw(m.rt, "bytes"))
	room := rapid.Bool().Draw(m.rt, "preallocate")
	if !room || int(n) > len(m.content) {
		m.resize(int(n))
	}
	size := int64(len(m.content))
	m.add("set size", func(ctx context.Context, f *mpi.File, _ int) error {
		set := f.SetSize
		if room {
			set = f.Preallocate
		}
		if err := set(ctx, n); err != nil {
			return err
		}
		if got, err := f.Size(); err != nil || got != size {
			return fmt.Errorf("size %d, want %d: %w", got, size, err)
		}
		return nil
	})
}

// run runs the program, and compares the file.
func (m *fileModel) run(world []*mpi.Comm, name string, hints map[string]string) {
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	errs := make([]error, m.size)
	var wg sync.WaitGroup
	for rank, c := range world {
		wg.Go(func() {
			if errs[rank] = m.rank(ctx, c, name, hints); errs[rank] != nil {
				stop()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		m.rt.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		m.rt.Fatal(err)
	}
	if !bytes.Equal(got, m.content) {
		m.rt.Fatalf("the file is\n%v, want\n%v", got, m.content)
	}
}

// rank is a rank's part of the program.
func (m *fileModel) rank(ctx context.Context, c *mpi.Comm, name string, hints map[string]string) error {
	f, err := mpi.FileOpen(ctx, c, name, mpi.ModeCreate|mpi.ModeExcl|mpi.ModeReadWrite, hints)
	if err != nil {
		return err
	}
	for i, s := range m.steps {
		for rank := range m.size {
			if rank == c.Rank() {
				err = s.do(ctx, f, rank)
			}
			if err == nil && s.inTurns {
				err = c.Barrier(ctx)
			}
			if err != nil {
				return fmt.Errorf("rank %d, step %d, %s: %w", c.Rank(), i, s.what, err)
			}
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	return f.Close(ctx)
}

// Any views, reads, writes, seeks and lengths, with any hints, against a model that knows where each
// byte lies.
func TestFileModel(t *testing.T) {
	for _, w := range ways {
		sizes := []int{2, 5}
		if w.module == "shm" {
			sizes = []int{1, 2, 3, 4, 6, 8}
		}
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%s, %d ranks", w.name, size), func(t *testing.T) {
				world, dir, files := job(t, w, size), t.TempDir(), 0
				rapid.Check(t, func(rt *rapid.T) {
					m := &fileModel{rt: rt, size: size, pointer: make([]int64, size)}
					hints := map[string]string{
						"cb_buffer_size":       strconv.Itoa(rapid.SampledFrom([]int{1, 7, 64, 4096, 1 << 20}).Draw(rt, "buffer")),
						"collective_buffering": rapid.SampledFrom([]string{"automatic", "true", "false"}).Draw(rt, "gather"),
						"striping_factor":      "3",
					}
					if rapid.Bool().Draw(rt, "number of aggregators") {
						hints["cb_nodes"] = strconv.Itoa(rapid.IntRange(1, 9).Draw(rt, "aggregators"))
					}
					// Nothing else may write between the bytes of a write then: as parts of ranks interleave
					// that leaves collectives by way of one aggregator, and calls one after another.
					if rapid.IntRange(0, 3).Draw(rt, "sieve") == 0 {
						m.sieve = true
						hints["romio_ds_write"], hints["cb_nodes"], hints["collective_buffering"] = "enable", "1", "true"
					}
					m.never = hints["collective_buffering"] == "false"
					m.view()
					for range rapid.IntRange(1, 12).Draw(rt, "steps") {
						switch rapid.IntRange(0, 9).Draw(rt, "step") {
						case 0:
							m.view()
						case 1:
							m.seek()
						case 2:
							m.length()
						case 3:
							on := rapid.Bool().Draw(rt, "atomic")
							m.atomic = on
							m.add("set atomicity", func(ctx context.Context, f *mpi.File, _ int) error {
								return errors.Join(f.SetAtomicity(ctx, on), f.Sync(ctx))
							})
						default:
							m.move()
						}
					}
					files++
					m.run(world, filepath.Join(dir, strconv.Itoa(files)), hints)
				})
			})
		}
	}
}

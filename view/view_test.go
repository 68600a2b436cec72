package view_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/view"
	"pgregory.net/rapid"
)

// viewed is n elements of an exporter as an importer has them.
func viewed[T any](t testing.TB, way string, n int) (*view.Remote[T], *view.Local[T]) {
	t.Helper()
	a, b, opts := pair(t, way)
	l, err := view.Export[T](b, 1, n, opts...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := view.Import[T](within(t), a, b.Node(), b.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if mapped := r.Import().Path() == vmmc.PathMapped; mapped != (way == "mapped") {
		t.Fatalf("the path is %v", r.Import().Path())
	}
	if l.Len() != n || r.Len() != n || len(l.Slice()) != n {
		t.Fatalf("%d elements, and %d at the importer, want %d", l.Len(), r.Len(), n)
	}
	return r, l
}

// A remote is an array of its elements: what each call returns, and what the exporter has, is what
// a slice of this process has after the same calls.
func TestModel(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Run("structs", func(t *testing.T) {
				model(t, way, rapid.Custom(func(t *rapid.T) job {
					return job{
						ID: rapid.Uint64().Draw(t, "id"), N: rapid.Uint32().Draw(t, "n"),
						Key:  [16]uint8(rapid.SliceOfN(rapid.Uint8(), 16, 16).Draw(t, "key")),
						Path: [2]point{{X: rapid.Float32().Draw(t, "x")}, {Y: 1}},
					}
				}))
			})
			t.Run("bytes", func(t *testing.T) { model(t, way, rapid.Uint8()) })
			t.Run("pairs of bytes", func(t *testing.T) {
				model(t, way, rapid.Map(rapid.Uint16(), func(v uint16) small { return small{uint8(v), uint8(v >> 8)} }))
			})
			t.Run("words", func(t *testing.T) { wordModel(t, way, rapid.Int32()) })
			t.Run("wide words", func(t *testing.T) { wordModel(t, way, rapid.Uint64()) })
		})
	}
}

const modelLen = 13

func model[T comparable](t *testing.T, way string, values *rapid.Generator[T]) {
	r, l := viewed[T](t, way, modelLen)
	ctx := within(t)
	rapid.Check(t, func(t *rapid.T) {
		want := slices.Clone(l.Slice())
		t.Repeat(arrayActions(ctx, r, l, want, values))
	})
}

// arrayActions are the calls that all elements have.
func arrayActions[T comparable](ctx context.Context, r *view.Remote[T], l *view.Local[T], want []T, values *rapid.Generator[T]) map[string]func(*rapid.T) {
	index := rapid.IntRange(-1, modelLen)
	// refused reports whether elements i to i+n are outside, and checks that err says so.
	refused := func(t *rapid.T, err error, i, n int) bool {
		inside := i >= 0 && n >= 0 && i+n <= modelLen
		if inside && err != nil || !inside && !errors.Is(err, vmmc.ErrBadArg) {
			t.Fatalf("elements %d to %d: %v", i, i+n, err)
		}
		return !inside
	}
	return map[string]func(*rapid.T){
		"store": func(t *rapid.T) {
			i, v := index.Draw(t, "i"), values.Draw(t, "v")
			if !refused(t, r.Store(ctx, i, v), i, 1) {
				want[i] = v
			}
		},
		"load": func(t *rapid.T) {
			i := index.Draw(t, "i")
			if v, err := r.Load(ctx, i); !refused(t, err, i, 1) && v != want[i] {
				t.Fatalf("element %d is %v, want %v", i, v, want[i])
			}
		},
		"put": func(t *rapid.T) {
			i, vs := index.Draw(t, "i"), rapid.SliceOfN(values, 0, modelLen+1).Draw(t, "vs")
			if !refused(t, r.Put(ctx, i, vs), i, len(vs)) {
				copy(want[i:], vs)
			}
		},
		"get": func(t *rapid.T) {
			i, vs := index.Draw(t, "i"), make([]T, rapid.IntRange(0, modelLen+1).Draw(t, "n"))
			if !refused(t, r.Get(ctx, i, vs), i, len(vs)) && !slices.Equal(vs, want[i:i+len(vs)]) {
				t.Fatalf("elements from %d are %v, want %v", i, vs, want[i:i+len(vs)])
			}
		},
		"": func(t *rapid.T) {
			if err := r.Import().Fence(ctx); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(l.Slice(), want) {
				t.Fatalf("the exporter has %v, want %v", l.Slice(), want)
			}
		},
	}
}

func wordModel[T view.Word](t *testing.T, way string, values *rapid.Generator[T]) {
	r, l := viewed[T](t, way, modelLen)
	ctx := within(t)
	index := rapid.IntRange(0, modelLen-1)
	rapid.Check(t, func(t *rapid.T) {
		want := slices.Clone(l.Slice())
		got := func(v T, err error, want T) {
			if err != nil || v != want {
				t.Fatalf("%v, %v; want %v", v, err, want)
			}
		}
		cell := func(i int) view.Cell[T] {
			c, err := view.CellOf(l, i)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		// expected is what an element has, or something else.
		expected := func(t *rapid.T, i int) T {
			if rapid.Bool().Draw(t, "right") {
				return want[i]
			}
			return values.Draw(t, "old")
		}
		actions := arrayActions(ctx, r, l, want, values)
		actions["add"] = func(t *rapid.T) {
			i, d := index.Draw(t, "i"), values.Draw(t, "d")
			old, err := view.Add(ctx, r, i, d)
			got(old, err, want[i])
			want[i] += d
		}
		actions["swap"] = func(t *rapid.T) {
			i, v := index.Draw(t, "i"), values.Draw(t, "v")
			old, err := view.Swap(ctx, r, i, v)
			got(old, err, want[i])
			want[i] = v
		}
		actions["compare and swap"] = func(t *rapid.T) {
			i, v := index.Draw(t, "i"), values.Draw(t, "v")
			old := expected(t, i)
			prev, swapped, err := view.CompareAndSwap(ctx, r, i, old, v)
			got(prev, err, want[i])
			if swapped != (old == want[i]) {
				t.Fatalf("swapped: %v, of %v for %v", swapped, old, want[i])
			}
			if swapped {
				want[i] = v
			}
		}
		actions["cell"] = func(t *rapid.T) {
			if err := r.Import().Fence(ctx); err != nil {
				t.Fatal(err)
			}
			i, v := index.Draw(t, "i"), values.Draw(t, "v")
			c := cell(i)
			got(c.Load(), nil, want[i])
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				c.Store(v)
				want[i] = v
			case 1:
				want[i] += v
				got(c.Add(v), nil, want[i])
			case 2:
				got(c.Swap(v), nil, want[i])
				want[i] = v
			case 3:
				old := expected(t, i)
				if c.CompareAndSwap(old, v) != (old == want[i]) {
					t.Fatalf("a compare and swap of %v for %v", want[i], old)
				} else if old == want[i] {
					want[i] = v
				}
			}
		}
		actions["wait"] = func(t *rapid.T) {
			if err := r.Import().Fence(ctx); err != nil {
				t.Fatal(err)
			}
			i := index.Draw(t, "i")
			v, err := view.Wait(ctx, l, i, want[i]+1)
			got(v, err, want[i])
		}
		t.Repeat(actions)
	})
}

// A goroutine that waits for an element gets it by each kind of change, of each half of a wide
// word too.
func TestWait(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Run("4 bytes", func(t *testing.T) { waits[uint32](t, way, 0x10) })
			t.Run("8 bytes", func(t *testing.T) { waits[int64](t, way, 1<<40) })
		})
	}
}

func waits[T view.Word](t *testing.T, way string, step T) {
	r, l := viewed[T](t, way, 3)
	ctx := within(t)
	var old T
	for _, d := range []T{1, step} {
		for what, change := range map[string]func(v T) error{
			"store":            func(v T) error { return r.Store(ctx, 1, v) },
			"put":              func(v T) error { return r.Put(ctx, 0, []T{v, v}) },
			"add":              func(T) error { _, err := view.Add(ctx, r, 1, d); return err },
			"swap":             func(v T) error { _, err := view.Swap(ctx, r, 1, v); return err },
			"compare and swap": func(v T) error { _, _, err := view.CompareAndSwap(ctx, r, 1, old, v); return err },
		} {
			done := make(chan T)
			go func() {
				v, err := view.Wait(ctx, l, 1, old)
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				done <- v
			}()
			if err := change(old + d); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if v := <-done; v != old+d {
				t.Errorf("%s: %v, want %v", what, v, old+d)
			}
			old += d
		}
	}
	ended, stop := context.WithCancel(ctx)
	stop()
	if v, err := view.Wait(ended, l, 1, old); v != old || !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := view.Wait(nil, l, 1, old+1); !errors.Is(err, vmmc.ErrBadArg) { //nolint:staticcheck // it is refused
		t.Errorf("without a context: %v", err)
	}
}

// The last word of an element comes last.
// Elements shorter than a word have no last word, whatever their index.
func TestLastWordOfShortElements(t *testing.T) {
	_, l := viewed[uint16](t, ways[0], 4)
	for i := range l.Len() {
		if _, err := l.LastWord(i); !errors.Is(err, vmmc.ErrBadAlignment) {
			t.Errorf("last word of element %d: %v", i, err)
		}
	}
}

func TestLastWord(t *testing.T) {
	type message struct {
		Data [62]uint32
		Sum  uint32
		Seq  uint32
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			r, l := viewed[message](t, way, 2)
			ctx := within(t)
			last, err := l.LastWord(1)
			if err != nil {
				t.Fatal(err)
			}
			for seq := range uint32(500) {
				m := message{Seq: seq + 1}
				for i := range m.Data {
					m.Data[i] = seq * uint32(i)
					m.Sum += m.Data[i]
				}
				if err := r.Store(ctx, 1, m); err != nil {
					t.Fatal(err)
				}
				if _, err := last.Wait(ctx, seq); err != nil {
					t.Fatal(err)
				}
				if got := l.Slice()[1]; got != m {
					t.Fatalf("message %d: %v, want %v", seq, got, m)
				}
			}
		})
	}
}

// Programs with other definitions are refused, and told the first field that differs.
func TestOtherLayouts(t *testing.T) {
	a, b, _ := pair(t, "mapped")
	type in struct{ X, Y uint32 }
	type base struct {
		ID uint32
		In [2]in
		N  uint32
	}
	if _, err := view.Export[base](b, 1, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Export(2, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Export(3, make([]byte, 64), vmmc.WithLabel([]byte("view\x01 or not"))); err != nil {
		t.Fatal(err)
	}
	type longNames struct {
		A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z [2]uint64
		ThisLine_is_long_enough_for_a_label                                          [2]uint64
		Differs                                                                      uint32
		_                                                                            [4]byte
	}
	type otherLongNames struct {
		A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z [2]uint64
		ThisLine_is_long_enough_for_a_label                                          [2]uint64
		Differs                                                                      int32
		_                                                                            [4]byte
	}
	if _, err := view.Export[longNames](b, 4, 4); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		err        error
		field, why string
	}{
		"another type": {imports[struct {
			ID uint32
			In [2]struct{ X, Y int32 }
			N  uint32
		}](t, a, b, 1), "In[].X", `field In[].X is "u32 X" there and "i32 X" here`},
		"another length": {imports[struct {
			ID uint32
			In [1]in
			N  uint32
		}](t, a, b, 1), "In", `field In is "[2]{u32 X;u32 Y} In" there and "[1]{u32 X;u32 Y} In" here`},
		"another name": {imports[struct {
			ID uint32
			In [2]struct{ X, Yes uint32 }
			N  uint32
		}](t, a, b, 1), "In[].Yes", `field In[].Yes is "u32 Y" there and "u32 Yes" here`},
		"one more": {imports[struct {
			ID uint32
			In [2]in
			N  uint32
			M  uint32
		}](t, a, b, 1), "M", "the exporter has no field M"},
		"one less": {imports[struct {
			ID uint32
			In [2]in
		}](t, a, b, 1), "In", `the exporter has a field "u32 N" more, behind field In`},
		"padding": {imports[struct {
			ID uint32
			In [2]in
			_  [4]byte
		}](t, a, b, 1), "_", `field _ is "u32 N" there and "_4" here`},
		"no struct": {imports[[2]uint32](t, a, b, 1), "", `the exporter's elements are "{u32 ID;[2]{u32 X;u32 Y} In;u32 N}"`},
		"no label":  {imports[base](t, a, b, 2), "", "the export has no layout: its exporter did not make it by package view, or a daemon on the way is of an older version"},
		"a label of something else": {
			imports[base](t, a, b, 3), "",
			"the export has no layout: its exporter did not make it by package view, or a daemon on the way is of an older version",
		},
		"behind the label's end": {imports[otherLongNames](t, a, b, 4), "", "the layouts differ behind what a label has room for"},
	} {
		var differs *view.LayoutError
		if !errors.Is(c.err, view.ErrLayout) || !errors.As(c.err, &differs) {
			t.Errorf("%s: %v", what, c.err)
			continue
		}
		if differs.Field != c.field || differs.Why != c.why || !strings.Contains(c.err.Error(), c.why) {
			t.Errorf("%s: field %q, %s\nwant  %q, %s", what, differs.Field, differs.Why, c.field, c.why)
		}
	}
	if err := imports[longNames](t, a, b, 4); err != nil {
		t.Errorf("the same layout, longer than a label: %v", err)
	}
	if err := imports[base](t, a, b, 1); err != nil {
		t.Errorf("after those that were refused: %v", err)
	}
}

// imports imports buffer id as elements of T.
func imports[T any](t *testing.T, a, b *vmmc.Process, id uint32) error {
	t.Helper()
	r, err := view.Import[T](within(t), a, b.Node(), b.PID(), id)
	if err != nil {
		return err
	}
	return r.Close()
}

// An index outside of a view is an error that names it and the number of elements, and nothing is
// written.
func TestOutside(t *testing.T) {
	r, l := viewed[uint32](t, "mapped", 5)
	ctx := within(t)
	for want, err := range map[string]error{
		"store element 5 of buffer 1":        r.Store(ctx, 5, 1),
		"put 3 elements from 3 of buffer 1":  r.Put(ctx, 3, []uint32{1, 2, 3}),
		"put 0 elements from 6 of buffer 1":  r.Put(ctx, 6, nil),
		"get 6 elements from 0 of buffer 1":  r.Get(ctx, 0, make([]uint32, 6)),
		"load element -1 of buffer 1":        second(r.Load(ctx, -1)),
		"add to element 9 of buffer 1":       second(view.Add(ctx, r, 9, 1)),
		"swap element 5 of buffer 1":         second(view.Swap(ctx, r, 5, 1)),
		"cell of element 5 of buffer 1":      second(view.CellOf(l, 5)),
		"cell of element -5 of buffer 1":     second(view.Wait(ctx, l, -5, 0)),
		"last word of element 5 of buffer 1": second(l.LastWord(5)),
		"compare and swap element -1 of buffer 1": func() error {
			_, _, err := view.CompareAndSwap(ctx, r, -1, 0, 1)
			return err
		}(),
	} {
		if !errors.Is(err, vmmc.ErrBadArg) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the view has 5 elements") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := l.Slice(); !slices.Equal(got, make([]uint32, 5)) {
		t.Errorf("the exporter has %v", got)
	}
	if err := errors.Join(r.Put(ctx, 5, nil), r.Get(ctx, 5, nil)); err != nil {
		t.Errorf("no elements at the end: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestBadExports(t *testing.T) {
	_, b, _ := pair(t, "mapped")
	mem, err := b.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := view.Export[uint32](b, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		err  error
		want error
	}{
		"no elements":         {second(view.Export[uint32](b, 1, 0)), vmmc.ErrBadSize},
		"fewer":               {second(view.Export[uint32](b, 1, -1)), vmmc.ErrBadSize},
		"more than an int":    {second(view.Export[uint64](b, 1, 1<<(intBits-4))), vmmc.ErrBadSize},
		"a refused type":      {second(view.Export[string](b, 1, 1)), vmmc.ErrBadArg},
		"a label":             {second(view.Export[uint32](b, 1, 1, vmmc.WithLabel([]byte("mine")))), vmmc.ErrBadArg},
		"an id that is taken": {second(view.Export[uint32](b, 7, 1)), vmmc.ErrBufAlreadyExists},
		"a part of one":       {second(view.ExportBytes[job](b, 1, mem.Bytes())), vmmc.ErrBadSize},
		"not aligned":         {second(view.ExportBytes[uint64](b, 1, mem.Bytes()[4:60])), vmmc.ErrBadAlignment},
		"no memory":           {second(view.ExportBytes[uint64](b, 1, nil)), vmmc.ErrBadSize},
	} {
		if what == "not aligned" && intBits == 32 {
			continue // Go aligns 64 bits at 32 there
		}
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", what, c.err, c.want)
		}
	}
	l, err := view.ExportBytes[uint64](b, 1, mem.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if l.Len() != 8 || &l.Export().Bytes()[0] != &mem.Bytes()[0] {
		t.Errorf("%d elements", l.Len())
	}
	if err := errors.Join(l.Close(), l.Close(), mem.Close(), taken.Close(), taken.Close()); err != nil {
		t.Error(err)
	}
}

const intBits = 32 << (^uint(0) >> 63)

// A rejoined import has the layout of the new export, which is compared again.
func TestRejoin(t *testing.T) {
	a, b, _ := pair(t, "mapped")
	ctx := within(t)
	l, err := view.Export[uint32](b, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := view.Import[uint32](ctx, a, b.Node(), b.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	im := r.Import()
	rejoined := func() error {
		t.Helper()
		if err := r.Store(ctx, 0, 1); !errors.Is(err, vmmc.ErrRevoked) {
			t.Errorf("after the export's end: %v", err)
		}
		if im, err = im.Rejoin(ctx); err != nil {
			t.Fatal(err)
		}
		again, err := view.RemoteOf[uint32](im)
		if err == nil {
			r = again
		}
		return err
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = view.Export[uint32](b, 1, 4); err != nil {
		t.Fatal(err)
	}
	if err := rejoined(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Store(ctx, 3, 9), r.Import().Fence(ctx)); err != nil || l.Slice()[3] != 9 {
		t.Errorf("%v, %v", l.Slice(), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := view.Export[[2]uint32](b, 1, 2); err != nil {
		t.Fatal(err)
	}
	if err := rejoined(); !errors.Is(err, view.ErrLayout) {
		t.Errorf("another layout: %v", err)
	}
}

// The calls of a view allocate nothing, as those of the import.
func TestAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the checks allocate")
	}
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			ctx := within(t)
			r, l := viewed[uint64](t, way, 8)
			jobs, _ := viewed[job](t, way, 8)
			bytes, _ := viewed[uint8](t, way, 8)
			some, someBytes, someJobs := make([]uint64, 4), make([]uint8, 3), make([]job, 2)
			for what, call := range map[string]func() error{
				"Store":            func() error { return jobs.Store(ctx, 1, someJobs[0]) },
				"Load":             func() error { return second(jobs.Load(ctx, 1)) },
				"Put":              func() error { return jobs.Put(ctx, 1, someJobs) },
				"Get":              func() error { return jobs.Get(ctx, 1, someJobs) },
				"Store of words":   func() error { return r.Store(ctx, 1, 5) },
				"Load of words":    func() error { return second(r.Load(ctx, 1)) },
				"Put of words":     func() error { return r.Put(ctx, 2, some) },
				"Get of words":     func() error { return r.Get(ctx, 2, some) },
				"Store of bytes":   func() error { return bytes.Store(ctx, 1, 5) },
				"Load of bytes":    func() error { return second(bytes.Load(ctx, 1)) },
				"Put of bytes":     func() error { return bytes.Put(ctx, 2, someBytes) },
				"Get of bytes":     func() error { return bytes.Get(ctx, 2, someBytes) },
				"Add":              func() error { return second(view.Add(ctx, r, 1, 5)) },
				"Swap":             func() error { return second(view.Swap(ctx, r, 1, 5)) },
				"CompareAndSwap":   func() error { _, _, err := view.CompareAndSwap(ctx, r, 1, 5, 6); return err },
				"Wait for a value": func() error { return second(view.Wait(ctx, l, 7, 1)) },
				"LastWord":         func() error { return second(l.LastWord(3)) },
			} {
				if n := testing.AllocsPerRun(200, func() {
					if err := call(); err != nil {
						t.Fatal(what, err)
					}
				}); n != 0 {
					t.Errorf("%s: %v allocations", what, n)
				}
			}
		})
	}
}

// Store, Load, Put and Get beside the calls of the import on the same bytes.
func BenchmarkView(b *testing.B) {
	for _, way := range ways {
		r, _ := viewed[job](b, way, 64)
		ctx, im := b.Context(), r.Import()
		raw, some := make([]byte, 48), make([]job, 64)
		all := make([]byte, 64*48)
		for name, call := range map[string]func() error{
			"Store":      func() error { return r.Store(ctx, 7, some[7]) },
			"Send":       func() error { return im.Send(ctx, raw, 7*48) },
			"Load":       func() error { return second(r.Load(ctx, 7)) },
			"Get":        func() error { return im.Get(ctx, raw, 7*48) },
			"Put of 64":  func() error { return r.Put(ctx, 0, some) },
			"Send of 64": func() error { return im.Send(ctx, all, 0) },
			"Get of 64":  func() error { return r.Get(ctx, 0, some) },
		} {
			b.Run(fmt.Sprintf("%s/%s", way, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := call(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

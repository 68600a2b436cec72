package view_test

import (
	"context"
	"errors"
	"fmt"
	"structs"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/view"
)

// Price is what the examples have in remote memory.
type Price struct {
	_     structs.HostLayout
	Cents int64
	Item  uint32
	Seq   uint32 // stored last
}

// An importer stores an element, and the exporter waits for it.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	local, err := view.Export[Price](b, 1, 100)
	check(err)
	remote, err := view.Import[Price](ctx, a, b.Node(), b.PID(), 1)
	check(err)
	check(remote.Store(ctx, 7, Price{Cents: 995, Item: 3, Seq: 1}))

	last, err := local.LastWord(7)
	check(err)
	_, err = last.Wait(ctx, 0)
	check(err)
	fmt.Println(local.Len(), local.Slice()[7].Cents)
	// Output: 100 995
}

// Elements are loaded and stored one by one and in ranges.
func ExampleRemote() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	local, err := view.Export[float64](b, 1, 6)
	check(err)
	defer local.Close()
	remote, err := view.Import[float64](ctx, a, b.Node(), b.PID(), 1)
	check(err)
	defer remote.Close()

	check(remote.Put(ctx, 1, []float64{1.5, 2.5, 3.5}))
	v, err := remote.Load(ctx, 2)
	check(err)
	all := make([]float64, remote.Len())
	check(remote.Get(ctx, 0, all))
	fmt.Println(v, all)
	err = remote.Store(ctx, 6, 1)
	fmt.Println(errors.Is(err, vmmc.ErrBadArg))
	// Output:
	// 2.5 [0 1.5 2.5 3.5 0 0]
	// true
}

// A counter that several importers use, and a cell of its exporter.
func ExampleAdd() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	local, err := view.Export[uint64](b, 1, 4)
	check(err)
	remote, err := view.Import[uint64](ctx, a, b.Node(), b.PID(), 1)
	check(err)

	before, err := view.Add(ctx, remote, 0, 5)
	check(err)
	now, err := view.Wait(ctx, local, 0, before)
	check(err)
	fmt.Println(before, now)

	prev, swapped, err := view.CompareAndSwap(ctx, remote, 0, 5, 6)
	check(err)
	fmt.Println(prev, swapped)
	prev, err = view.Swap(ctx, remote, 0, 40)
	check(err)
	fmt.Println(prev)
	// Output:
	// 0 5
	// 5 true
	// 6
}

func ExampleCellOf() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	local, err := view.Export[int32](b, 1, 4)
	check(err)
	remote, err := view.Import[int32](ctx, a, b.Node(), b.PID(), 1)
	check(err)

	cell, err := view.CellOf(local, 3)
	check(err)
	cell.Store(-1)
	fmt.Println(cell.Load(), cell.Add(2), cell.Swap(7), cell.CompareAndSwap(7, 8))
	check(remote.Store(ctx, 3, 9))
	v, err := cell.Wait(ctx, 8)
	check(err)
	fmt.Println(v)
	// Output:
	// -1 1 1 true
	// 9
}

// smallest is what any type of words has for its least value.
func smallest[T view.Word](s []T) (least T) {
	for i, v := range s {
		if i == 0 || v < least {
			least = v
		}
	}
	return least
}

// Functions for any type of words.
func ExampleWord() {
	fmt.Println(smallest([]int64{3, -2, 5}), smallest([]uint32{3, 2}))
	// Output: -2 2
}

// Programs with different definitions of a type do not import from each other.
func ExampleLayoutError() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	_, err := view.Export[Price](b, 1, 100)
	check(err)

	type OldPrice struct {
		Cents float64
		Item  uint32
		Seq   uint32
	}
	_, err = view.Import[OldPrice](ctx, a, b.Node(), b.PID(), 1)
	fmt.Println(errors.Is(err, view.ErrLayout))
	if e := (*view.LayoutError)(nil); errors.As(err, &e) {
		fmt.Println(e.Field, "-", e.Why)
		fmt.Println(e.Theirs)
		fmt.Println(e.Ours)
	}
	// Output:
	// true
	// Cents - field Cents is "i64 Cents" there and "f64 Cents" here
	// le:{i64 Cents;u32 Item;u32 Seq}
	// le:{f64 Cents;u32 Item;u32 Seq}
}

func ExampleLayoutOf() {
	l, err := view.LayoutOf[Price]()
	check(err)
	fmt.Println(l.Text, l.Size, l.Size%l.Align)
	fmt.Printf("%x\n", l.Fingerprint())
	// Output:
	// le:{i64 Cents;u32 Item;u32 Seq} 16 0
	// d4de4022e9b1fa0d
}

// What a type must not have is told with its path.
func ExampleTypeError() {
	type Order struct {
		ID    uint64
		Lines [4]struct {
			Item uint32
			Gift bool
			_    [3]byte
		}
	}
	_, err := view.LayoutOf[Order]()
	if e := (*view.TypeError)(nil); errors.As(err, &e) {
		fmt.Println(e.Type)
		fmt.Println(e.Field)
		fmt.Println(e.Why)
	}
	// Output:
	// view_test.Order
	// Lines[].Gift
	// a peer may store what is neither true nor false into bool: use uint8
}

// The text of a layout, which another program has sent.
func ExampleCheck() {
	type Point struct{ X, Y uint32 }
	l, err := view.LayoutOf[Point]()
	check(err)
	fmt.Println(l.Text, view.Check[Point](l.Text))

	err = view.Check[Point]("le:{u32 X;f32 Y}")
	if e := (*view.LayoutError)(nil); errors.As(err, &e) {
		fmt.Println(e.Field)
		fmt.Println(e.Why)
	}
	// Output:
	// le:{u32 X;u32 Y} <nil>
	// Y
	// field Y is "f32 Y" there and "u32 Y" here
}

// Memory that the program has, and an import that it has.
func ExampleExportBytes() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	mem, err := b.Alloc(vmmc.PageSize())
	check(err)
	local, err := view.ExportBytes[uint16](b, 1, mem.Bytes(), vmmc.ReadOnly())
	check(err)
	local.Slice()[5] = 0x1234

	im, err := a.Import(ctx, b.Node(), b.PID(), local.Export().ID())
	check(err)
	remote, err := view.RemoteOf[uint16](im)
	check(err)
	v, err := remote.Load(ctx, 5)
	check(err)
	fmt.Printf("%#x %v\n", v, remote.Import() == im)
	// Output: 0x1234 true
}

// processes are two of a node of their own.
func processes(ctx context.Context) (a, b *vmmc.Process, end func()) {
	n, err := node.Start()
	check(err)
	a, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	b, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	return a, b, func() {
		a.Close()
		b.Close()
		n.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

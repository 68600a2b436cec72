package table_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/table"
)

// Item and Price are what the examples put into tables.
type Item struct{ Number, Variant uint32 }

type Price struct {
	Cents int64
	Since int64
}

// The owner puts prices, and another process looks them up.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	prices, err := table.New[Item, Price](ctx, a, "prices", 1000)
	check(err)
	defer prices.Close()
	check(prices.Put(ctx, Item{7, 1}, Price{Cents: 995}))

	r, err := table.Open[Item, Price](ctx, b, "prices") // mostly another program
	check(err)
	defer r.Close()
	price, ok, err := r.Get(ctx, Item{7, 1})
	check(err)
	fmt.Println(price.Cents, ok)
	_, ok, err = r.Get(ctx, Item{8, 1})
	check(err)
	fmt.Println(ok)
	// Output:
	// 995 true
	// false
}

// The owner reads its table too, and cannot put more than there is room for.
func ExampleTable() {
	ctx := context.Background()
	a, _, end := processes(ctx)
	defer end()
	prices, err := table.New[Item, Price](ctx, a, "prices", 2)
	check(err)
	defer prices.Close()

	check(prices.Put(ctx, Item{1, 0}, Price{Cents: 100}))
	check(prices.Put(ctx, Item{2, 0}, Price{Cents: 200}))
	err = prices.Put(ctx, Item{3, 0}, Price{Cents: 300})
	fmt.Println(errors.Is(err, table.ErrFull), prices.Len())

	ok, err := prices.Delete(ctx, Item{1, 0})
	check(err)
	fmt.Println(ok)
	for item, price := range prices.All() {
		fmt.Println(item, price.Cents)
	}
	_, ok, err = prices.Get(ctx, Item{1, 0})
	check(err)
	fmt.Println(ok)
	// Output:
	// true 2
	// true
	// {2 0} 200
	// false
}

// A table that ends, and one that comes under its name.
func ExampleReader() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	prices, err := table.New[Item, Price](ctx, a, "prices", 10)
	check(err)
	r, err := table.Open[Item, Price](ctx, b, "prices")
	check(err)
	defer r.Close()

	check(prices.Close())
	<-r.Done()
	_, _, err = r.Get(ctx, Item{1, 0})
	fmt.Println(errors.Is(err, vmmc.ErrRevoked))

	prices, err = table.New[Item, Price](ctx, a, "prices", 100)
	check(err)
	defer prices.Close()
	check(prices.Put(ctx, Item{1, 0}, Price{Cents: 5}))
	check(r.Rejoin(ctx))
	price, _, err := r.Get(ctx, Item{1, 0})
	check(err)
	fmt.Println(price.Cents)
	// Output:
	// true
	// 5
}

// A copy in another process takes the owner's place.
func ExampleReplicate() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	prices, err := table.New[Item, Price](ctx, a, "prices", 10)
	check(err)
	check(prices.Put(ctx, Item{1, 0}, Price{Cents: 100}))

	often := table.Every(time.Millisecond)
	copied, err := table.Replicate[Item, Price](ctx, b, "prices", "copy", often)
	check(err)
	check(prices.Put(ctx, Item{2, 0}, Price{Cents: 200}))
	for behind := uint64(1); behind > 0; {
		behind, err = copied.Behind(ctx)
		check(err)
	}
	check(prices.Close())
	<-copied.Done()
	fmt.Println(errors.Is(copied.Err(), vmmc.ErrRevoked))

	prices, err = copied.Promote()
	check(err)
	defer prices.Close()
	check(prices.PublishAs(ctx, "prices"))
	check(prices.Put(ctx, Item{3, 0}, Price{Cents: 300}))
	fmt.Println(prices.Len())
	// Output:
	// true
	// 3
}

// A replica that ends before its source.
func ExampleReplica() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	prices, err := table.New[Item, Price](ctx, a, "prices", 10)
	check(err)
	defer prices.Close()
	copied, err := table.Replicate[Item, Price](ctx, b, "prices", "copy")
	check(err)
	fmt.Println(copied.Err())
	check(copied.Close())
	fmt.Println(errors.Is(copied.Err(), vmmc.ErrClosed))
	// Output:
	// <nil>
	// true
}

// A table that one process may read.
func ExampleOption() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	only := table.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{b.ID()}})
	prices, err := table.New[Item, Price](ctx, a, "prices", 10, only)
	check(err)
	defer prices.Close()

	_, err = table.Open[Item, Price](ctx, a, "prices")
	fmt.Println(errors.Is(err, vmmc.ErrNoRights))
	// Output: true
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

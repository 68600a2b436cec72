package cookbook

import (
	"context"
	"errors"
	"iter"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/table"
)

// Item and Price are a key and a value.
type Item struct{ Number, Variant uint32 }

// Price is in cents.
type Price struct{ Cents int64 }

// KeepPrices has a table of prices, and puts each one that changes.
func KeepPrices(ctx context.Context, p *vmmc.Process, changes iter.Seq2[Item, Price]) {
	prices, err := table.New[Item, Price](ctx, p, "prices", 10_000)
	check(err)
	for item, price := range changes {
		check(prices.Put(ctx, item, price))
	}
	check(prices.Close())
}

// PriceOf asks no other process: it reads the table. Where the owner has ended, it waits for the
// next one.
func PriceOf(ctx context.Context, r *table.Reader[Item, Price], item Item) (cents int64, ok bool) {
	for {
		price, ok, err := r.Get(ctx, item)
		if errors.Is(err, vmmc.ErrPeerGone) {
			check(r.Rejoin(ctx))
			continue
		}
		check(err)
		return price.Cents, ok
	}
}

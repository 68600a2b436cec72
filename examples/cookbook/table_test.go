package cookbook

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("keep prices", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		KeepPrices(ctx, p, func(yield func(Item, Price) bool) { // until the test ends it
			for cents := int64(0); ; cents++ {
				for n := range uint32(number(args[0])) {
					if !yield(Item{Number: n}, Price{cents}) {
						return
					}
				}
			}
		})
		return nil
	})
	vmmctest.Role("prices", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		r, err := table.Open[Item, Price](ctx, p, args[0])
		check(err)
		fmt.Println("open")
		var last, now int64
		for ; now < 1000; now, _ = PriceOf(ctx, r, Item{Number: 3}) {
		}
		_, ok := PriceOf(ctx, r, Item{Number: 100})
		fmt.Println("rose", ok)
		for ; now >= last; now, _ = PriceOf(ctx, r, Item{Number: 3}) { // the next owner's begin at 0
			last = now
		}
		fmt.Println("again")
		return r.Close()
	})
}

func TestTable(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	owner := vmmctest.Child(t, nodes[0], "keep prices", "100")
	readers := []*vmmctest.Proc{
		vmmctest.Child(t, nodes[0], "prices", "prices"),
		vmmctest.Child(t, nodes[1], "prices", nodes[0].Name()+"/prices"),
	}
	for _, r := range readers {
		lines(t, r, "open", "rose false")
	}
	owner.Kill()
	vmmctest.Child(t, nodes[0], "keep prices", "100")
	for _, r := range readers {
		lines(t, r, "again")
		if err := r.Wait(); err != nil {
			t.Error(err)
		}
	}
}

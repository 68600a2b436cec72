package cookbook

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
)

// Range is what clients ask for the sum of.
type Range struct{ From, To int64 }

// Sum is the answer.
type Sum struct{ Total int64 }

// ServeSums answers until the program ends.
func ServeSums(ctx context.Context, p *vmmc.Process) {
	_, err := call.Serve(ctx, p, "sums", func(_ context.Context, q *Range, sum *Sum) error {
		if q.To < q.From {
			return fmt.Errorf("%d is less than %d", q.To, q.From) // the client's error
		}
		for i := q.From; i <= q.To; i++ {
			sum.Total += i
		}
		return nil
	})
	check(err)
	<-ctx.Done()
}

// AskSum has a server on node n1 sum up.
func AskSum(ctx context.Context, p *vmmc.Process, q Range) (int64, error) {
	c, err := call.Dial[Range, Sum](ctx, p, "n1/sums") // keep it for further calls
	check(err)
	defer c.Close()
	var sum Sum
	err = c.Call(ctx, &q, &sum)
	return sum.Total, err
}

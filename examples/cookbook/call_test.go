package cookbook

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("sums", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		ServeSums(ctx, p)
		return nil
	})
	vmmctest.Role("ask", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		fmt.Println(AskSum(ctx, p, Range{1, 100}))
		_, err := AskSum(ctx, p, Range{5, 1})
		fmt.Println(err != nil)
		return nil
	})
}

func TestCall(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	vmmctest.Child(t, nodes[0], "sums")
	for _, n := range nodes {
		lines(t, vmmctest.Child(t, n, "ask"), "5050 <nil>", "true")
	}
}

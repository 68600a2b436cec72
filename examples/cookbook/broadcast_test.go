package cookbook

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("tell", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		Tell(ctx, p, func(yield func(string) bool) {
			for _, line := range args {
				if !yield(line) {
					return
				}
			}
			_, err := p.ImportName(ctx, "enough") // which the test publishes
			check(err)
		})
		return nil
	})
	vmmctest.Role("listen", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		Listen(ctx, p, args[0])
		fmt.Println("the end")
		return nil
	})
}

func TestBroadcast(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	readers := []*vmmctest.Proc{
		vmmctest.Child(t, nodes[0], "listen", "news"),
		vmmctest.Child(t, nodes[1], "listen", nodes[0].Name()+"/news"),
	}
	vmmctest.Child(t, nodes[0], "tell", "one", "two", "three")
	for _, r := range readers {
		lines(t, r, "one", "two", "three")
	}
	_, err := nodes[0].Open(t).Publish(t.Context(), "enough", make([]byte, 4096))
	check(err)
	for _, r := range readers {
		lines(t, r, "the end")
	}
}

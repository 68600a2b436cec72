package cookbook

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// readings are those from first on, up to n, of value 1.
func readings(sensor uint64, first, n int, last func()) func(func(Reading) bool) {
	return func(yield func(Reading) bool) {
		for range n - first {
			if !yield(Reading{sensor, 1}) {
				return
			}
		}
		last()
	}
}

func init() {
	vmmctest.Role("sum", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		fmt.Println(Total(ctx, p, number(args[0])))
		return nil
	})
	vmmctest.Role("sensor", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		Measure(ctx, p, readings(uint64(number(args[0])), number(args[1]), number(args[2]), func() {}))
		fmt.Println("done")
		return nil
	})
	vmmctest.Role("sensor that hangs", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		Measure(ctx, p, readings(uint64(number(args[0])), 0, number(args[1]), func() {
			fmt.Println("hangs")
			<-ctx.Done() // never: the test kills it
		}))
		return nil
	})
}

// A sensor that is killed is replaced, and the sum has each reading once.
func TestChannel(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	sum := vmmctest.Child(t, nodes[0], "sum", "2")
	lines(t, sum, "ready")
	lines(t, vmmctest.Child(t, nodes[1], "sensor", "1", "0", "3000"), "done")
	killed := vmmctest.Child(t, nodes[0], "sensor that hangs", "2", "40")
	lines(t, killed, "hangs")
	killed.Kill()
	lines(t, sum, "lost a sensor after 40 readings")
	lines(t, vmmctest.Child(t, nodes[1], "sensor", "2", "40", "100"), "done")
	lines(t, sum, "3100")
}

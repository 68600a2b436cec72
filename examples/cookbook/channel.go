package cookbook

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/channel"
)

// Reading is what the sensors send.
type Reading struct {
	Sensor uint64
	Value  float64
}

// Measure sends a sensor's readings, and closes its end of the channel.
func Measure(ctx context.Context, p *vmmc.Process, readings iter.Seq[Reading]) {
	out, err := channel.Dial[Reading](ctx, p, "n1/readings")
	check(err)
	for r := range readings {
		check(out.Send(ctx, r)) // waits while the buffer is full
	}
	check(out.Close(ctx)) // returns when all are received
}

// Total adds up the readings of a number of sensors, until each has closed its end. For one that dies
// it lets another one dial, which goes on behind the readings that were received.
func Total(ctx context.Context, p *vmmc.Process, sensors int) (sum float64) {
	in, err := channel.Make[Reading](ctx, p, "readings", channel.Senders(sensors))
	check(err)
	fmt.Println("ready")
	for {
		r, ok, err := in.Recv(ctx)
		var lost *channel.LostError
		switch {
		case errors.As(err, &lost):
			fmt.Printf("lost a sensor after %d readings\n", lost.Values)
			in.Replace(lost)
		case err != nil:
			check(err)
		case !ok:
			check(in.Close())
			return sum
		default:
			sum += r.Value
		}
	}
}

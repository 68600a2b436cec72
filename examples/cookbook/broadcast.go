package cookbook

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
)

// Tell appends lines, and returns when all readers that live have them.
func Tell(ctx context.Context, p *vmmc.Process, lines iter.Seq[string]) {
	w, err := broadcast.NewWriter(ctx, p, "news", 1<<20)
	check(err)
	for line := range lines {
		_, err := w.Append([]byte(line)) // waits for no reader
		check(err)
	}
	check(w.Close(ctx))
}

// Listen prints all lines. One that begins late gets those that the log still has, and one that is
// too slow is told what it has lost.
func Listen(ctx context.Context, p *vmmc.Process, log string) {
	r, err := broadcast.NewReader(ctx, p, log, broadcast.Oldest)
	check(err)
	for line, err := range r.All(ctx) {
		if lost := (*broadcast.Overrun)(nil); errors.As(err, &lost) {
			fmt.Println("lost:", lost.Lost, "bytes")
			continue
		}
		check(err)
		fmt.Printf("%s\n", line.Data)
	}
	check(r.Close())
}

// Latency measures how long a message takes from one node to another.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/curve"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
	"github.com/vmmc-go/vmmc/samples/internal/report"
)

func main() { os.Exit(command.Execute(newCommand())) }

func newCommand() *cobra.Command {
	var f command.Flags
	c := f.New(true, &cobra.Command{
		Use:   "latency numberofwords numberofiterations",
		Short: "Measure the latency of single messages between two nodes",
		Long: `Measure the latency of single messages between two nodes by ping-pong: the time
for one way is half that of a round trip, on average over all iterations, after a
burst that warms up. Messages are made before the clock starts and checked, word by
word, after it has stopped.`,
		Example: `  latency 1 10000
  latency 1024 1000 --json`,
		Args: cobra.ExactArgs(2),
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := command.Numbers(args,
			command.Number{Name: "numberofwords", Min: 1, Max: command.MaxWords},
			command.Number{Name: "numberofiterations", Min: 1, Max: command.MaxIterations})
		if err != nil {
			return err
		}
		return f.Run(c, 2, args, func(ctx context.Context, m *ranks.Member) error {
			return run(ctx, c, m, v[0], v[1], &f)
		})
	}
	return c
}

// result is a point of ping-pong in the terms of latency.
type result struct {
	curve.Point
	OneWay    float64 `json:"us_one_way"`
	RoundTrip float64 `json:"us_round_trip"`
}

func run(
	ctx context.Context, c *cobra.Command, m *ranks.Member, words, iterations int, f *command.Flags,
) error {
	points, err := curve.Measure(ctx, m, curve.PingPong, []int{words}, iterations, f.Seed, func(curve.Point) {})
	if err != nil || !m.Master() {
		return err
	}
	r := result{Point: points[0]}
	r.Program, r.OneWay, r.RoundTrip = c.Name(), r.Micros, 2*r.Micros
	out := c.OutOrStdout()
	if f.JSON {
		return report.JSON(out, []result{r})
	}
	fmt.Fprintf(out, "%s between %v and %v (%s), seed %d\n", r.Program, r.From, r.To, r.Path, r.Seed)
	t := report.NewTable(out, "words", "bytes", "iterations", "one way µs", "round trip µs", "MB/s")
	t.Row(fmt.Sprint(r.Words), fmt.Sprint(r.Bytes), fmt.Sprint(r.Iterations),
		report.Figure(r.OneWay), report.Figure(r.RoundTrip), report.Figure(r.MBps))
	fmt.Fprintf(out, "checked: %v\n", r.Checked)
	return nil
}

package bandwidth

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/curve"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
	"github.com/vmmc-go/vmmc/samples/internal/report"
)

// Program makes the command of a bandwidth program.
func Program(name, what string, k curve.Kind) *cobra.Command {
	var f command.Flags
	var file string
	c := f.New(true, &cobra.Command{
		Use:   name + " iterations start_nwords end_nwords",
		Short: "Measure the bandwidth of " + what,
		Long: `Measure the bandwidth of ` + what + `.

The first message has start_nwords words, and the size doubles up to end_nwords;
each is measured with that many iterations, after a burst that warms up. Messages
are made before the clock starts and checked, word by word, after it has stopped.
A MB is 1 000 000 bytes.`,
		Example: fmt.Sprintf(`  %[1]s 10000 1 1024
  %[1]s 1000 1 262144 --plot %[1]s.svg
  %[1]s 100 1 65536 --json`, name),
		Args: cobra.ExactArgs(3),
	})
	c.Flags().StringVar(&file, "plot", "", "draw the curve into a `file`, .svg or .png")
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := command.Numbers(args,
			command.Number{Name: "iterations", Min: 1, Max: command.MaxIterations},
			command.Number{Name: "start_nwords", Min: 1, Max: command.MaxWords},
			command.Number{Name: "end_nwords", Min: 1, Max: command.MaxWords})
		if err != nil {
			return err
		}
		if v[2] < v[1] {
			return command.Usage("end_nwords %d is less than start_nwords %d", v[2], v[1])
		}
		if err := checkPlot(file); err != nil {
			return command.Usage("--plot %w", err)
		}
		return f.Run(c, 2, args, func(ctx context.Context, m *ranks.Member) error {
			return run(ctx, c, m, k, sizes(v[1], v[2]), v[0], &f, file)
		})
	}
	return c
}

func run(
	ctx context.Context, c *cobra.Command, m *ranks.Member, k curve.Kind, words []int, iterations int,
	f *command.Flags, file string,
) error {
	out := c.OutOrStdout()
	var t *report.Table
	points, err := curve.Measure(ctx, m, k, words, iterations, f.Seed, func(p curve.Point) {
		if f.JSON {
			return
		}
		if t == nil {
			fmt.Fprintf(out, "%s between %v and %v (%s), %d iterations, seed %d\n",
				c.Name(), p.From, p.To, p.Path, p.Iterations, p.Seed)
			t = report.NewTable(out, "words", "bytes", "MB/s", "µs/message")
		}
		t.Row(fmt.Sprint(p.Words), fmt.Sprint(p.Bytes), report.Figure(p.MBps), report.Figure(p.Micros))
	})
	if err != nil || !m.Master() {
		return err
	}
	if file != "" {
		title := fmt.Sprintf("%s, %v to %v (%s)",
			c.Name(), points[0].From.Node, points[0].To.Node, points[0].Path)
		if err := draw(file, title, points); err != nil {
			return err
		}
	}
	return conclude(out, c.Name(), points, f.JSON)
}

// conclude says what was checked, in JSON with all points.
func conclude(out io.Writer, name string, points []curve.Point, asJSON bool) error {
	var sum mesh.Count
	for i := range points {
		points[i].Program = name
		sum.Add(points[i].Checked)
	}
	if asJSON {
		return report.JSON(out, points)
	}
	fmt.Fprintf(out, "checked: %v\n", sum)
	return nil
}

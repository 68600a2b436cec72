package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/bench"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// newBenchNames measures names.
func newBenchNames() *cobra.Command {
	var asJSON bool
	conf := bench.NamesConfig{Names: 10_000, Waiters: 1_000, Count: 1_000, Kills: 20}
	c := &cobra.Command{
		Use:   "names",
		Short: "Measure publications and look-ups of names",
		Long: `Start three nodes on loopback, and measure what a name takes: its publication, by the
process whose export it is; its look-up, as an import by name over a link that is there; and from
the kill of its owner until another process has the name (gone). Names are of the node, of another
node, or of the cluster, whose owner and importer are on two nodes. All is measured once without
other names, and once beside many names and imports that wait for names, on the owner's node. The
round trip is the floor: packets of the same sizes go to another process over a unix socket.`,
		Example: `  vmmc bench names
  vmmc bench names --names 1000 --waiters 100
  vmmc bench names --json | jq '.[] | select(.what == "gone") | .most_ns'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case conf.Names < 0 || conf.Names > 16_000:
				return serve.Usage("--names %d: want 0 to 16000", conf.Names)
			case conf.Waiters < 0 || conf.Waiters > 1000:
				return serve.Usage("--waiters %d: want 0 to 1000", conf.Waiters)
			case conf.Count < 1 || conf.Count > 1_000_000:
				return serve.Usage("--count %d: want 1 to 1000000", conf.Count)
			case conf.Kills < 1 || conf.Kills > 10_000:
				return serve.Usage("--kills %d: want 1 to 10000", conf.Kills)
			}
			rs, err := bench.RunNames(cmd.Context(), conf, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), rs)
			}
			us := func(ns int64) string { return number(float64(ns) / 1e3) }
			rows := [][]string{{"WHAT", "WHERE", "NAMES", "WAITERS", "MEDIAN us", "P99 us", "MOST us"}}
			for _, r := range rs {
				rows = append(rows, []string{
					r.What, r.Where, fmt.Sprint(r.Names), fmt.Sprint(r.Waiters), us(r.MedianNS), us(r.P99NS), us(r.MostNS),
				})
			}
			return printTable(cmd.OutOrStdout(), rows)
		},
	}
	c.Flags().IntVar(&conf.Names, "names", conf.Names, "how many other `names` there are")
	c.Flags().IntVar(&conf.Waiters, "waiters", conf.Waiters, "how many `imports` wait for names")
	c.Flags().IntVar(&conf.Count, "count", conf.Count, "how many `times` each operation is timed")
	c.Flags().IntVar(&conf.Kills, "kills", conf.Kills, "how many `times` an owner is killed")
	jsonFlag(c, &asJSON)
	return c
}

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/bench"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// newBenchAU measures automatic update.
func newBenchAU() *cobra.Command {
	var asJSON bool
	idle, rounds := int64(1<<30), 20000
	sizes := []int{4 << 10, 64 << 10, 1 << 20, 16 << 20}
	ways := []string{bench.Mapped, bench.Stream, bench.Remote}
	c := &cobra.Command{
		Use:   "au",
		Short: "Measure automatic update",
		Long: `Bind memory to an import and measure, in one program that has both ends and the
nodes: the time from a store until it is seen, by way, size and number of pages that
are stored to, beside a send of the same word; an alias beside a flag in memory that
both sides have; how fast a region that is written anew arrives, beside a send of it;
what a store costs the writer; and what a region costs to which nothing is stored.

The ways are mapped and stream, on one node, and remote, between two nodes on
loopback. Mode "watch" is where the kernel tells which pages were stored to, "compare"
where all memory is compared with a copy.`,
		Example: `  vmmc bench au
  vmmc bench au --ways mapped --idle 0
  vmmc bench au --json | jq '.sights[] | select(.hot_pages == 1)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, w := range ways {
				if !slices.Contains([]string{bench.Mapped, bench.Stream, bench.Remote}, w) {
					return serve.Usage("--ways %s: there are %s, %s and %s",
						w, bench.Mapped, bench.Stream, bench.Remote)
				}
			}
			for _, n := range sizes {
				if n < 4096 || n%4 != 0 {
					return serve.Usage("--sizes %d: want at least 4096, in whole words", n)
				}
			}
			if rounds < 10 {
				return serve.Usage("--rounds %d: want at least 10", rounds)
			}
			if idle < 0 || idle%4 != 0 {
				return serve.Usage("--idle %d: want 0 or a number of whole words", idle)
			}
			r, err := bench.RunAU(cmd.Context(), bench.AUConfig{Ways: ways, Sizes: sizes, Rounds: rounds, Idle: idle, Bulk: 16 << 20})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return printAU(cmd, &r)
		},
	}
	c.Flags().StringSliceVar(&ways, "ways", ways, "which `ways` data takes")
	_ = c.RegisterFlagCompletionFunc("ways", cobra.FixedCompletions(ways, cobra.ShellCompDirectiveNoFileComp))
	c.Flags().IntSliceVar(&sizes, "sizes", sizes, "how many `bytes` are bound, for latencies")
	c.Flags().IntVar(&rounds, "rounds", rounds, "how many stores are timed for a latency")
	c.Flags().Int64Var(&idle, "idle", idle, "how many `bytes` are bound for the cost of idleness; 0 for none")
	jsonFlag(c, &asJSON)
	return c
}

func printAU(cmd *cobra.Command, r *bench.AU) error {
	w := cmd.OutOrStdout()
	table := func(title string, rows [][]string) error {
		if len(rows) == 1 {
			return nil
		}
		fmt.Fprintln(w, title)
		err := printTable(w, rows)
		fmt.Fprintln(w)
		return err
	}
	num := func(f float64) string { return fmt.Sprintf("%.4g", f) }
	rows := [][]string{{"WAY", "MODE", "BYTES", "HOT PAGES", "P50 us", "P99 us", "SEND P50 us"}}
	for _, s := range r.Sights {
		rows = append(rows, []string{s.Way, s.Mode, fmt.Sprint(s.Bytes), fmt.Sprint(s.HotPages), num(s.P50NS / 1e3), num(s.P99NS / 1e3), num(s.SendNS / 1e3)})
	}
	if err := table("From a store until it is seen", rows); err != nil {
		return err
	}
	rows = [][]string{{"ALIAS P50 ns", "RAW P50 ns", "RATIO"}}
	for _, f := range r.Flags {
		rows = append(rows, []string{num(f.AliasNS), num(f.RawNS), num(f.Ratio)})
	}
	if err := table("A flag in an alias, one way", rows); err != nil {
		return err
	}
	rows = [][]string{{"WAY", "MODE", "BYTES", "FLUSH MB/s", "SEND MB/s", "RATIO", "STORE+FLUSH MB/s", "STORE+SEND MB/s"}}
	for _, b := range r.Bulk {
		rows = append(rows, []string{b.Way, b.Mode, fmt.Sprint(b.Bytes), num(b.Flush), num(b.Send), num(b.Ratio), num(b.StoreMBps), num(b.SendMBps)})
	}
	if err := table("A region written anew, until it has arrived", rows); err != nil {
		return err
	}
	rows = [][]string{{"MODE", "HOT PAGE ns", "NOT BOUND ns", "COLD PAGE ns", "NOT BOUND ns"}}
	for _, x := range r.Writers {
		rows = append(rows, []string{x.Mode, num(x.HotNS), num(x.PlainNS), num(x.FirstNS), num(x.Each)})
	}
	if err := table("What a store costs", rows); err != nil {
		return err
	}
	rows = [][]string{{"MODE", "BYTES", "CPU %", "CLEAN FLUSH us", "FIRST STORE P50 us", "AT MOST us"}}
	for _, x := range r.Idle {
		rows = append(rows, []string{x.Mode, fmt.Sprint(x.Bytes), num(x.CPU), num(x.CleanUS), num(x.FirstUS), num(x.FirstMost)})
	}
	return table("A region to which nothing is stored", rows)
}

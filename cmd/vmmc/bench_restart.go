package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/bench"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// newBenchRestart measures how soon a daemon that was killed serves again.
func newBenchRestart() *cobra.Command {
	var asJSON bool
	conf := bench.RestartConfig{Processes: 100, Restarts: 5, Away: 100 * time.Millisecond}
	c := &cobra.Command{
		Use:   "restart",
		Short: "Measure how soon a restarted daemon serves again",
		Long: `Start a node and many programs, half of them spawned by its daemon, of which one sends
all the while. Kill the daemon, start another, and measure the time from that start until it takes
connections (up), and until a process that is new has imported from each of the others, one after another
(full). Then another new process does the same, which is what the imports take without a restart (again). The
longest time in which no message came is by looks a millisecond apart.`,
		Example: `  vmmc bench restart
  vmmc bench restart --processes 20 --away 2s
  vmmc bench restart --json | jq '[.restarts[].full_ns] | max'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case conf.Processes < 1 || conf.Processes > 1000:
				return serve.Usage("--processes %d: want 1 to 1000", conf.Processes)
			case conf.Restarts < 1:
				return serve.Usage("--restarts %d: want at least 1", conf.Restarts)
			case conf.Away < 0:
				return serve.Usage("--away %v: want at least 0", conf.Away)
			}
			r, err := bench.RunRestart(cmd.Context(), conf, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			ms := func(ns int64) string { return fmt.Sprintf("%.1f", float64(ns)/1e6) }
			rows := [][]string{{"RESTART", "UP ms", "FULL ms", "AGAIN ms"}}
			for i, s := range r.Restarts {
				rows = append(rows, []string{fmt.Sprint(i + 1), ms(s.UpNS), ms(s.FullNS), ms(s.AgainNS)})
			}
			if err := printTable(cmd.OutOrStdout(), rows); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\n%d processes, %d of them spawned. %d messages came, with no pause of more than %s ms.\n", r.Processes, r.Spawned, r.Messages, ms(r.StillNS))
			return nil
		},
	}
	c.Flags().IntVar(&conf.Processes, "processes", conf.Processes, "how many `processes` there are")
	c.Flags().IntVar(&conf.Restarts, "restarts", conf.Restarts, "how many `times` the daemon is killed")
	c.Flags().DurationVar(&conf.Away, "away", conf.Away, "for how `long` there is no daemon")
	jsonFlag(c, &asJSON)
	return c
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/bench"
	"github.com/vmmc-go/vmmc/internal/figure"
	"github.com/vmmc-go/vmmc/internal/serve"
)

// newBench is the group of commands that measure.
func newBench() *cobra.Command {
	c := group("bench", "Measure what this machine does")
	c.Long = benchLong
	c.Example = `  vmmc bench latency
  vmmc bench bandwidth --path remote --sizes 64K:4M
  vmmc bench all --json > results.json`
	for _, m := range bench.Measurements() {
		c.AddCommand(newBenchOf(m))
	}
	c.AddCommand(newBenchAU(), newBenchNames(), newBenchRestart(), newBenchAll())
	return c
}

// newBenchEnd is how a measurement runs its ends.
func newBenchEnd() *cobra.Command {
	return &cobra.Command{
		Use: bench.Child, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error { return bench.RunEnd(cmd.Context(), args) },
	}
}

// runBench measures on each path that is wanted.
func runBench(cmd *cobra.Command, what []string, o *benchOptions) error {
	confs, err := o.configs(what)
	if err != nil {
		return err
	}
	var peers []figure.Peer
	if o.peers != "" {
		if peers, err = figure.ReadPeers(o.peers); err != nil {
			return serve.Flag("peers", o.peers, err)
		}
	}
	if o.plot != "" { // before all is measured
		if err := os.MkdirAll(o.plot, 0o755); err != nil { //nolint:gosec // any user may read the figures
			return serve.Flag("plot", o.plot, err)
		}
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	results := []bench.Result{} // [] in JSON
	for _, c := range confs {
		to := bench.Sink{Log: cmd.ErrOrStderr(), Result: func(r bench.Result) { results = append(results, r) }}
		end := func() {}
		if o.progress() {
			to.Progress, end = benchBar(c.Path)
		}
		err := bench.Run(ctx, c, to)
		end()
		var sig interrupted
		if errors.As(context.Cause(ctx), &sig) {
			return &serve.StatusError{Status: 128 + int(sig.sig), Err: sig}
		}
		if err != nil {
			return fmt.Errorf("%s path: %w", c.Path, err)
		}
	}
	if o.plot != "" {
		files, err := figure.Draw(o.plot, results, peers)
		if err != nil {
			return serve.Flag("plot", o.plot, err)
		}
		if !o.asJSON {
			defer func() {
				for _, f := range files {
					fmt.Fprintln(cmd.OutOrStdout(), "drawn:", f)
				}
			}()
		}
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), results)
	}
	return printBench(cmd.OutOrStdout(), results)
}

// number prints a figure with as many digits as mean something.
func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	v, _ = strconv.ParseFloat(fmt.Sprintf("%.3g", v), 64)
	return strconv.FormatFloat(v, 'f', -1, 64) // %g would write small ones with an exponent
}

// paths are those that --path names.
func (o *benchOptions) paths() ([]string, error) {
	all := []string{bench.Local, bench.Remote}
	switch {
	case o.path == "":
		return all, nil
	case slices.Contains(all, o.path):
		return []string{o.path}, nil
	}
	return nil, serve.Usage("--path %s: there are local and remote", o.path)
}

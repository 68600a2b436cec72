package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/bench"
)

const benchLong = `Measure the library between two processes, beside what this machine can do itself.`

// benchTexts say what each measurement is.
var benchTexts = map[string][2]string{
	"latency":   {"Measure one-way latency", "Measure half the round trip of a message that the far end answers with one of the same size."},
	"bandwidth": {"Measure one-way bandwidth", "Measure the bandwidth of one-way traffic, until all has arrived."},
	"fetch":     {"Measure gets", "Measure the round trip of a get."},
	"rate":      {"Measure how many small puts a second", "Measure how many small puts a second one sender makes, one call a put."},
	"overhead":  {"Measure what a send takes of its caller", "Measure the mean time of a send call over bursts of 64."},
}

// newBenchOf is the command of one measurement.
func newBenchOf(what string) *cobra.Command {
	var o benchOptions
	t := benchTexts[what]
	c := &cobra.Command{
		Use:   what,
		Short: t[0],
		Long:  t[1],
		Example: fmt.Sprintf(`  vmmc bench %[1]s
  vmmc bench %[1]s --path remote --json`, what),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, []string{what}, &o) },
	}
	o.register(c, !bench.Fixed(what))
	return c
}

// newBenchAll measures everything.
func newBenchAll() *cobra.Command {
	var o benchOptions
	c := &cobra.Command{
		Use:     "all",
		Short:   "Measure everything but automatic update",
		Long:    `Run all measurements but "vmmc bench au", one after another, on both paths.`,
		Example: `  vmmc bench all --quick --json > results.json`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runBench(cmd, bench.Measurements(), &o) },
	}
	o.register(c, true)
	return c
}

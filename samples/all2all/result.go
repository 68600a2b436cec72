package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
	"github.com/vmmc-go/vmmc/samples/internal/report"
)

type result struct {
	Program    string           `json:"program"`
	Method     string           `json:"method"`
	Ranks      []vmmc.ProcessID `json:"ranks"` // the master first
	Seed       uint64           `json:"seed"`
	Iterations int              `json:"iterations"`
	report.Speed
	PerNode float64    `json:"mb_per_s_per_process"`
	Checked mesh.Count `json:"checked"`
}

func (e *exchange) run(ctx context.Context, c *cobra.Command, m *ranks.Member) error {
	took, err := e.measure(ctx, m)
	if err != nil {
		return err
	}
	if !m.Master() {
		return m.Report(e.mesh.Checked)
	}
	texts, err := m.Gather(ctx)
	if err != nil {
		return err
	}
	messages := uint64(e.iterations) * uint64(e.nodes) * uint64(e.nodes-1)
	r := result{
		Program: c.Name(), Method: e.method, Ranks: m.Ranks, Seed: e.flags.Seed, Iterations: e.iterations,
		Speed: report.NewSpeed(e.words, messages, took), Checked: e.mesh.Checked,
	}
	r.PerNode = r.MBps / float64(e.nodes)
	for i, t := range texts {
		var n mesh.Count
		if err := json.Unmarshal(t, &n); err != nil {
			return fmt.Errorf("the result of %s: %w", m.Name(i+1), err)
		}
		r.Checked.Add(n)
	}
	if r.Checked.Messages != messages {
		return fmt.Errorf("%d messages were checked, %d were sent", r.Checked.Messages, messages)
	}
	if e.flags.JSON {
		return report.JSON(c.OutOrStdout(), []result{r})
	}
	r.print(c)
	return nil
}

func (r *result) print(c *cobra.Command) {
	out := c.OutOrStdout()
	fmt.Fprintf(out, "%s %s among %d processes, %d iterations, seed %d\n",
		r.Program, r.Method, len(r.Ranks), r.Iterations, r.Seed)
	t := report.NewTable(out, "words", "bytes", "messages", "µs/message", "MB/s", "MB/s per process")
	t.Row(fmt.Sprint(r.Words), fmt.Sprint(r.Bytes), fmt.Sprint(r.Messages),
		report.Figure(r.Micros), report.Figure(r.MBps), report.Figure(r.PerNode))
	for i, id := range r.Ranks {
		fmt.Fprintf(out, "rank %d: %v\n", i, id)
	}
	fmt.Fprintf(out, "checked: %v\n", r.Checked)
}

// Spawn spawns itself on the next node, a level lower, until the level is 0.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
	"github.com/vmmc-go/vmmc/samples/internal/report"
)

// deepest bounds the level: that many processes are there at a time.
const deepest = 256

func main() { os.Exit(command.Execute(newCommand())) }

func newCommand() *cobra.Command {
	var f command.Flags
	c := f.New(false, &cobra.Command{
		Use:   "spawn [level]",
		Short: "Spawn this program on the next node with level-1, until level is 0",
		Long: `Spawn this program on the next node with level-1, until level is 0. The default
level is 1. Each process tells its parent who was spawned below it; the table says
how long it took from the call of Spawn until the two knew each other.`,
		Example: `  spawn
  spawn 6 --json`,
		Args: cobra.MaximumNArgs(1),
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		level := 1
		if len(args) > 0 {
			v, err := command.Numbers(args, command.Number{Name: "level", Min: 0, Max: deepest})
			if err != nil {
				return err
			}
			level = v[0]
		}
		return f.Join(c, func(ctx context.Context, m *ranks.Member) error { return run(ctx, c, m, &f, level) })
	}
	return c
}

// generation is one process of the recursion.
type generation struct {
	Level   int            `json:"level"`
	Process vmmc.ProcessID `json:"process"`
	Millis  float64        `json:"ms_to_spawn,omitempty"` // the next level's; none at level 0
}

func run(
	ctx context.Context, c *cobra.Command, m *ranks.Member, f *command.Flags, level int,
) error {
	if f.Peer() {
		if err := m.Follow(); err != nil {
			return err
		}
	}
	all := []generation{{Level: level, Process: m.Process.ID()}}
	if level > 0 {
		start := time.Now()
		if err := m.Lead(2, f.ForPeers(strconv.Itoa(level-1))); err != nil {
			return err
		}
		all[0].Millis = time.Since(start).Seconds() * 1e3
		texts, err := m.Gather(ctx)
		if err != nil {
			return err
		}
		var below []generation
		if err := json.Unmarshal(texts[0], &below); err != nil {
			return fmt.Errorf("the result of %s: %w", m.Name(1), err)
		}
		if len(below) != level {
			return fmt.Errorf("%d processes were spawned, wanted %d", len(below), level)
		}
		all = append(all, below...)
		if err := m.Dismiss(); err != nil {
			return err
		}
	}
	if f.Peer() {
		return m.Report(all)
	}
	if f.JSON {
		return report.JSON(c.OutOrStdout(), all)
	}
	t := report.NewTable(c.OutOrStdout(), "level", "node", "process", "ms to spawn the next")
	for _, g := range all {
		took := "-"
		if g.Level > 0 {
			took = report.Figure(g.Millis)
		}
		t.Row(fmt.Sprint(g.Level), g.Process.Node.String(), fmt.Sprint(g.Process.PID), took)
	}
	return nil
}

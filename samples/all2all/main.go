// All2all measures the bandwidth of messages from all nodes to all others.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/ranks"
)

// The methods.
const (
	pairwise = "pairwise"
	random   = "random"
)

func main() { os.Exit(command.Execute(newCommand())) }

func newCommand() *cobra.Command {
	var e exchange
	c := e.flags.New(true, &cobra.Command{
		Use:   "all2all method numberofnodes numberofwords numberofiterations",
		Short: "Measure the bandwidth of messages from all nodes to all others",
		Long: `Measure the bandwidth of messages from all nodes to all others. In each iteration
each process sends one message to each other one. The method is the order:

  pairwise  in step k a process sends to the k-th after it, and awaits the message of
            the k-th before it, so that all are busy with one other at a time
  random    each sends to all others in an order of its own, drawn anew each time,
            then awaits the messages of all

Messages are made before the clock starts and checked, word by word, after it has
stopped, after a burst of iterations that warms up. A MB is 1 000 000 bytes.`,
		Example: `  all2all pairwise 3 1024 1000
  all2all random 3 1024 1000 --seed 7 --json`,
		Args: cobra.ExactArgs(4),
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if e.method = args[0]; e.method != pairwise && e.method != random {
			return command.Usage("method %q: wanted %s or %s", e.method, pairwise, random)
		}
		v, err := command.Numbers(args[1:],
			command.Number{Name: "numberofnodes", Min: 2, Max: command.MaxNodes},
			command.Number{Name: "numberofwords", Min: 1, Max: command.MaxWords},
			command.Number{Name: "numberofiterations", Min: 1, Max: command.MaxIterations})
		if err != nil {
			return err
		}
		if err := command.CheckMemory(v[0], v[1]); err != nil {
			return err
		}
		e.nodes, e.words, e.iterations = v[0], v[1], v[2]
		return e.flags.Run(c, e.nodes, args, func(ctx context.Context, m *ranks.Member) error {
			return e.run(ctx, c, m)
		})
	}
	return c
}

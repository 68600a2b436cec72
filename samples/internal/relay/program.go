package relay

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/samples/internal/command"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// most bounds the messages of a run, all of which are recorded.
const most = 4 << 20

// Program makes the command of a program that walks a kind of route.
func Program(name, rule string, k route.Kind) *cobra.Command {
	r := run{kind: k}
	c := r.flags.New(true, &cobra.Command{
		Use:   name + " num_nodes nwords iterations",
		Short: "Send messages " + string(k) + " among all nodes",
		Long: `Send messages of nwords words ` + string(k) + `, where A is the master and
the others are drawn at random. ` + rule + `

Each message is checked word by word where it arrives. Who sent to whom is recorded
and checked against the above. The time is that of the whole run: it has the making
and the checking of the messages in it. A MB is 1 000 000 bytes.`,
		Example: fmt.Sprintf(`  %[1]s 3 1024 100
  %[1]s 3 1 20 --seed 7 --pattern %[1]s.json`, name),
		Args: cobra.ExactArgs(3),
	})
	c.Flags().StringVar(&r.file, "pattern", "", "write who sent to whom, and the figures, into a `file` (JSON)")
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := command.Numbers(args,
			command.Number{Name: "num_nodes", Min: 2, Max: command.MaxNodes},
			command.Number{Name: "nwords", Min: 1, Max: command.MaxWords},
			command.Number{Name: "iterations", Min: 1, Max: command.MaxIterations})
		if err != nil {
			return err
		}
		if err := command.CheckMemory(v[0], v[1]); err != nil {
			return err
		}
		if n := route.Messages(k, v[0], v[2]); n > most {
			return command.Usage("%d iterations: up to %d messages, at most %d can be recorded", v[2], n, most)
		}
		r.nodes, r.words, r.iterations = v[0], v[1], v[2]
		return r.flags.Run(c, r.nodes, args, r.work(c))
	}
	return c
}

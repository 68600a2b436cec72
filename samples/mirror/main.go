// Mirror shows the state of a program on another node while it runs, by automatic
// update: the program only stores to its memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
)

func main() { os.Exit(execute()) }

func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "mirror",
		Short: "Watch a program's memory from another node",
		Long: `Watch Conway's game of life on another node while it runs. "mirror watch" offers
memory, says how to run the game into it, and draws what appears there. "mirror run"
plays the game in memory of its own that is bound to it.`,
		Example: `  mirror watch                # on one node, or in one terminal
  mirror run n2 17            # on another, as the first one says`,
		SilenceUsage: true,
	}
	c.AddCommand(newWatch(), newRun())
	return c
}

// buffer is the id of the memory that is mirrored.
const buffer = 1

func newWatch() *cobra.Command {
	var plain bool
	c := &cobra.Command{
		Use: "watch", Short: "Offer memory and draw what appears in it", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := vmmc.Open(c.Context())
			if err != nil {
				return err
			}
			defer p.Close()
			return watch(c.Context(), p, c.OutOrStdout(), plain)
		},
	}
	c.Flags().BoolVar(&plain, "plain", false, "draw nothing, and say at the end what was seen")
	return c
}

func newRun() *cobra.Command {
	generations, pause := 500, 50*time.Millisecond
	c := &cobra.Command{
		Use: "run node pid", Short: "Play the game in memory that is mirrored", Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			pid, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil {
				return fmt.Errorf("pid %q: %w", args[1], err)
			}
			if generations < 1 || pause < 0 {
				return errors.New("--generations is at least 1, --pause not negative")
			}
			p, err := vmmc.Open(c.Context())
			if err != nil {
				return err
			}
			defer p.Close()
			node, err := p.NameToNode(strings.TrimSpace(args[0]))
			if err != nil {
				return err
			}
			return run(c.Context(), p, c.OutOrStdout(), node, vmmc.PID(pid), uint32(generations), pause)
		},
	}
	c.Flags().IntVar(&generations, "generations", generations, "how many are played")
	c.Flags().DurationVar(&pause, "pause", pause, "time between two generations")
	return c
}

package command

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"
)

// Flags are the flags of all sample programs.
type Flags struct {
	JSON    bool
	Seed    uint64
	Timeout time.Duration

	peer   bool // spawned by a process of the same program
	seeded bool // the program has a seed
}

// New makes the command of a program with the flags; seeded programs take a seed.
func (f *Flags) New(seeded bool, c *cobra.Command) *cobra.Command {
	c.DisableFlagsInUseLine = true
	c.Use += " [flags]"
	c.Long += `

It joins the node whose socket VMMC_SOCKET names, and spawns the other processes
of the run itself, on the nodes that VMMCHOSTS names (if it is not set, those of the session): from
this node on, in that order, and again from the first one if there are too few.

Exit status: 0 all is well, 1 it failed, 2 it was called wrongly.`
	fs := c.Flags()
	fs.SortFlags = false
	fs.BoolVar(&f.JSON, "json", false, "print a JSON array of objects")
	fs.DurationVar(&f.Timeout, "timeout", 10*time.Minute, "give up after this `time`")
	if f.seeded = seeded; seeded {
		fs.Uint64Var(&f.Seed, "seed", 0, "draw all that is random from this `number` (default: a new one each time)")
	}
	fs.BoolVar(&f.peer, "peer", false, "")
	if err := fs.MarkHidden("peer"); err != nil {
		panic(err) // the flag is defined one line above
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if f.Timeout <= 0 {
			return Usage("--timeout %v: wanted more than 0", f.Timeout)
		}
		if seeded && !c.Flags().Changed("seed") {
			f.Seed = uint64(rand.Uint32()) //nolint:gosec // no secret; short enough to be typed again
		}
		return nil
	}
	return c
}

// ForPeers is the command line of the processes that are spawned.
func (f *Flags) ForPeers(args ...string) []string {
	out := []string{"--peer", fmt.Sprintf("--timeout=%v", f.Timeout)}
	if f.seeded {
		out = append(out, fmt.Sprintf("--seed=%d", f.Seed))
	}
	return append(out, args...)
}

// Vmmc is the tool of vmmc: certificates, the state of nodes, clusters on one
// machine to try things on, and sessions with their programs. See vmmc --help.
package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/serve"
)

func main() {
	root := newRoot()
	// A link to this program that has a launcher's name is that launcher.
	switch filepath.Base(os.Args[0]) {
	case "mpirun", "mpiexec":
		root.SetArgs(append([]string{"mpirun"}, os.Args[1:]...))
	}
	os.Exit(serve.Execute(root, ownCluster))
}

func newRoot() *cobra.Command {
	root := group("vmmc", "Remote memory for Go: certificates, nodes, clusters and sessions")
	root.Long = `Tool of vmmc, remote memory for Go: makes certificates, shows the state of
nodes, runs clusters on one machine, and programs in sessions on the nodes.

Exit status: 0 all is well, 1 it failed, 2 it was called wrongly, 3 part of the
cluster is not reachable. "vmmc run" ends with that of the program.`
	root.Example = `  # three nodes on this machine, and how they are
  vmmc cluster up --nodes 3
  export VMMC_SOCKET=...   # as it prints
  vmmc node ls
  # a program on each of them
  vmmc session add --share /tmp --out /out test
  vmmc run -n 3 test hostname
  vmmc session del test
  vmmc cluster down`
	root.Version = vmmc.Release
	root.AddCommand(newBench(), newCert(), newCluster(), newDemo(), newDoctor(), newKill(), newLink(), newLogs(), newMPIRun(), newName(), newNet(), newNode(), newPs(), newRPC(), newRun(), newSession(), newTop(), newVersion(), newVia())
	// What "cluster up" starts: the tool alone is enough, without vmmcd beside it.
	daemon := serve.Command("vmmcd")
	daemon.Hidden = true
	root.AddCommand(daemon, newDemoChild(), newBenchEnd(), newGen())
	return root
}

// group is a command that only has others below it.
func group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		// Without these two cobra takes a misspelt command for a request for help
		// and succeeds.
		Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
}

func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	c.SuggestionsMinimumDistance = 2
	for _, s := range c.SuggestionsFor(args[0]) {
		hint += "; did you mean " + s + "?"
	}
	return serve.Usage("no command %q%s", args[0], hint)
}

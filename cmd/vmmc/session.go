package main

import "github.com/spf13/cobra"

// sessionStatus is about all commands on sessions.
const sessionStatus = `
Exit status: 0 it is done, 1 it failed, 2 it was called wrongly, 3 part of the
cluster is not reachable.`

func newSession() *cobra.Command {
	c := group("session", "Make, delete and list sessions")
	c.Long = `Make, delete and list sessions. A session is what programs run in: on each of its
nodes it has a user, a drive that the programs' directories are in, and a
directory for their output. Deleting it ends all that runs in it.`
	c.Example = `  vmmc session add --share /home/guest --out /tmp test
  vmmc run test hostname
  vmmc session del test`
	c.AddCommand(newSessionAdd(), newSessionDel(), newSessionLs())
	return c
}

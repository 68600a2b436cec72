package main

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmmc-go/vmmc/cmd/vmmc/internal/mpijob"
	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
)

func newMPIRun() *cobra.Command {
	var where ask.Flags
	socket := func(f *pflag.FlagSet) {
		f.StringVar(&where.Socket, "socket", nodeproto.DefaultPath(), "`path` of the socket of this machine's node")
	}
	c := &cobra.Command{
		Use:   "mpirun [flags] PROGRAM [ARGUMENT...] [: [flags] PROGRAM [ARGUMENT...]]...",
		Short: "Run the ranks of an MPI job",
		Long: `Run the ranks of an MPI job, print what they print, and wait for their ends. A link
to this tool whose name is mpirun or mpiexec does the same. A flag may have one dash
or two. Behind a ":" is another program of the same job, with flags of its own: -np,
--host, --wdir, --env and -x.

Without --session the ranks run on this machine: in this directory, with this tool's
environment, and found in its PATH. They use this machine's node, and if there is none,
one that runs in this tool as long as they do. If this tool is killed, they are too.

With --session they run in that session, on the nodes of --host, --host-list or --hostfile,
or on those of the session, from this machine's on. A program is found as by "vmmc run",
and has the node's environment, and the variables that flags set. A node has one slot, or
as many as are given. When all slots are taken, mapping begins again with the first node.
With --map-by load each rank goes to the node that has the least load for its slots: the load
average of the last minute, and the ranks that it has got.
If this tool is killed, or does not reach a node for half a second, the node kills its ranks.

Rank 0, or that of --stdin, has standard input; that of the others is empty. Lines of
different ranks do not mix. With -l each begins with its rank, as [3].

When a rank fails, the others end: they get SIGTERM, and half a second later SIGKILL.
SIGINT, SIGTERM, SIGHUP and SIGQUIT end the job: the ranks get that signal, and two
seconds later, or when it comes again, SIGKILL. SIGUSR1 and SIGUSR2 are passed on.

Each rank finds its number in VMMC_RANK, the number of all in VMMC_SIZE, and the group in
VMMC_GROUP.

Exit status: that of the first rank that fails, 128 and the signal's number if one ended
it, or ended the job; 125 if this tool failed, 2 if it was called wrongly.`,
		Example: `  vmmc mpirun -n 4 ./pi
  vmmc mpirun -l -n 1 ./server : -n 3 ./worker --fast
  vmmc mpirun -n 2 -genv LEVEL 3 -bind-to core ./stencil
  vmmc mpirun --session test -n 8 --host n1:4,n2:4 ./pi
  vmmc mpirun --session test -f nodes.txt --map-by node -n 8 ./pi`,
		DisableFlagParsing: true, // hydra's flags have one dash, or two words
		RunE: func(c *cobra.Command, args []string) error {
			j, err := mpijob.Parse(args, env.Lookup, socket)
			if errors.Is(err, mpijob.ErrHelp) {
				return c.Help()
			}
			if err != nil {
				return serve.Usage("%v", err)
			}
			told := notifySignals()
			defer signal.Stop(told)
			// else the runtime ends this tool when its output is closed; and programs inherit what
			// is ignored
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
			m := &mpiRun{Job: j, where: &where, told: told, stderr: c.ErrOrStderr(), out: newStreams(c.OutOrStdout(), c.ErrOrStderr())}
			status, err := m.run(c.Context())
			if own := (*serve.StatusError)(nil); errors.As(err, &own) {
				return err
			}
			return runStatus(status, err)
		},
	}
	(&mpijob.Job{}).AddFlags(c.Flags(), &mpijob.Program{})
	socket(c.Flags())
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeMPIRun(c, &where, args, typed)
	}
	return c
}

// completeMPIRun completes flags, the values that nodes know, and files. Cobra does not, because this
// command reads its flags itself.
func completeMPIRun(c *cobra.Command, where *ask.Flags, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	where.Socket = nodeproto.DefaultPath()
	if len(args) > 0 {
		switch last := strings.TrimLeft(args[len(args)-1], "-"); {
		case !strings.HasPrefix(args[len(args)-1], "-"):
		case last == "session":
			return where.OneSession(nil)(c, nil, typed)
		case slices.Contains([]string{"host", "H", "hosts", "host-list"}, last):
			return where.NodeNames(c, nil, typed)
		case last == "map-by":
			return mpijob.Ways, cobra.ShellCompDirectiveNoFileComp
		case last == "bind-to":
			return []cobra.Completion{"none", "core"}, cobra.ShellCompDirectiveNoFileComp
		}
	}
	if !strings.HasPrefix(typed, "-") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var all []cobra.Completion
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if name := "--" + f.Name; strings.HasPrefix(name, typed) {
			_, usage := pflag.UnquoteUsage(f)
			all = append(all, cobra.CompletionWithDesc(name, usage))
		}
	})
	return all, cobra.ShellCompDirectiveNoFileComp
}

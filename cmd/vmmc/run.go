package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// toolFailed is the exit status of "run" when it, and not the program, failed.
const toolFailed = 125

// maxRun keeps a slip of the finger from filling the cluster.
const maxRun = 4096

// blame has an error of a node name the flag that it is about.
func (o *runOptions) blame(c *cobra.Command, err error) error {
	for _, v := range o.env {
		if name, _, _ := strings.Cut(v, "="); strings.Contains(err.Error(), "variable "+name+" ") {
			return serve.Flag("env", v, err)
		}
	}
	return blame(c, err, "dir")
}

func newRun() *cobra.Command {
	var where ask.Flags
	var o runOptions
	c := &cobra.Command{
		Use:   "run [flags] SESSION [--] PROGRAM [ARGUMENT...] | [flags] --alone PROGRAM [ARGUMENT...]",
		Short: "Run a program in a session, or without one",
		Long: `Run a program in a session, and print what it prints until it ends. The program is
a path relative to the working directory, or a name in the node's PATH, or an
absolute path on the node. No shell takes part.

Its input is empty. With -i it is this tool's, and with -it the program gets a
terminal on its node, of the kind and the size of this one, and all keys. If this
tool or the way to the node is lost, that terminal is hung up: the program gets
SIGHUP; with -i alone its input ends.

Its standard output and standard error are this tool's, apart; with -t they are one.
While this tool shows nothing, the program waits when it has printed 256 KiB more,
without -i 64 KiB, and then for 10 seconds at most. When the reader of this tool's output
has gone, the programs get SIGPIPE. The tool reports output that is lost, and its exit
status is 125 then.

It runs on this machine's node; with --node on the first one named. With -n it
runs several times, on one node after the other: on those that --node names, or
VMMCHOSTS, or on those of the session in the order in which it was made on them,
from this machine's on; with [NODE.PID] before each line of output. All are one run
group. If one cannot be started, those that were are ended again. Each finds its number,
from 0 on, in VMMC_RANK, the number of all in VMMC_SIZE, and the group in VMMC_GROUP, as
1:ID:n1*4,n2*3. The ranks of one node follow each other, and rank 0 is started first.

With --alone, or with one argument, which is the program, it runs on this machine without
a session: in this directory, with this tool's environment, and found in its PATH. One
program has this tool's input and terminal; several have none, and are a group. They use
this machine's node, and if there is none, one that runs in this tool as long as they do.
If this tool ends otherwise, they are killed.

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to all that is in
the run group on all nodes. A second SIGINT, a second or more after the first, is
passed on as SIGTERM, and a third one as SIGKILL. With -t SIGTERM and SIGHUP end
this tool, and the terminal is hung up. If this tool ends otherwise, a program
without -t does not.

Exit status: that of the program, 128 and the signal's number if one ended it; of
several, the greatest. 137 if the session was deleted meanwhile, 125 if this tool
failed, 2 if it was called wrongly.`,
		Example: `  vmmc run test hostname
  vmmc run --dir /bin test ./prog arg1 arg2
  vmmc run -n 4 --node n1,n2 test ./prog
  vmmc run -n 4 ./prog
  vmmc run --alone -n 4 ./prog arg1
  vmmc run -it --node n2 test bash
  vmmc run -i test sha256sum < FILE
  vmmc run --detach --json test sleep 1000`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.count < 1 || o.count > maxRun {
				return serve.Usage("--count %d (-n): wanted 1 to %d", o.count, maxRun)
			}
			if o.asJSON && !o.detach {
				return serve.Usage("--json without --detach: what is printed is the program's output")
			}
			alone := o.alone || len(args) == 1
			if alone {
				if err := o.checkAlone(&where); err != nil {
					return err
				}
			}
			if err := o.checkInput(&where); err != nil {
				return err
			}
			o.request = &nodev1.RunRequest{
				Directory: []byte(o.dir), Hosts: []byte(env.Get(nodeproto.HostsEnv)),
			}
			if err := o.setEnv(); err != nil {
				return err
			}
			if alone {
				told := notifySignals()
				defer signal.Stop(told)
				// else the runtime ends this tool when its output is closed; and programs inherit what
				// is ignored
				signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
				status, err := o.runAlone(c.Context(), where.Socket, args, told,
					c.OutOrStdout(), c.ErrOrStderr())
				return runStatus(status, err)
			}
			if args[1] == "--" { // flags end at the session already
				if args = append(args[:1:1], args[2:]...); len(args) < 2 {
					return serve.Usage("no program behind --")
				}
			}
			o.request.Session, o.request.Path = args[0], []byte(args[1])
			o.askForInput()
			for _, s := range args[2:] {
				o.request.Args = append(o.request.Args, []byte(s))
			}
			told := notifySignals()
			defer signal.Stop(told)
			if !o.detach { // a reader that is gone is told of, and does not end this tool
				signal.Ignore(syscall.SIGPIPE)
			}
			status, err := o.run(c.Context(), &where, told, c.OutOrStdout(), c.ErrOrStderr())
			if err != nil {
				err = o.blame(c, err)
				if _, e := exec.LookPath(args[0]); e == nil && errors.Is(err, code.NoSuchSession) {
					err = fmt.Errorf("%w; to run program %s without a session put --alone before it", err,
						args[0])
				}
			}
			return runStatus(status, err)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.IntVarP(&o.count, "count", "n", 1, "`number` of processes")
	f.BoolVar(&o.alone, "alone", false, "run on this machine, without a session")
	f.StringVar(&o.dir, "dir", "/", "working `directory`, absolute within the session's drive")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set a `variable` for the program: NAME=VALUE, or NAME as it is here; may be given again")
	f.BoolVarP(&o.input, "interactive", "i", false, "pass standard input on")
	f.BoolVarP(&o.tty, "tty", "t", false, "with -i: give the program a terminal, as this one is")
	f.BoolVarP(&o.detach, "detach", "d", false, "do not wait: print the logical pids and end")
	where.Add(c)
	// Files of this machine, which may have the drive, beside sessions.
	files := func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	c.ValidArgsFunction = func(
		c *cobra.Command, args []string, typed string,
	) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		if !o.alone {
			all, _ = where.OneSession(files)(c, args, typed)
		}
		return all, cobra.ShellCompDirectiveDefault
	}
	jsonFlag(c, &o.asJSON)
	return c
}

// setEnv says in the request which variables the programs find beside their nodes'.
func (o *runOptions) setEnv() error {
	for _, v := range o.env {
		if strings.HasPrefix(v, "=") {
			return serve.Usage("--env %s: variable %q is not of the form NAME=VALUE", v, v)
		}
		if !strings.Contains(v, "=") {
			value, set := env.Lookup(v)
			if !set {
				return serve.Usage("--env %s: there is no such variable here; wanted NAME=VALUE, "+
					"or the NAME of one to pass on", v)
			}
			v += "=" + value
		}
		if name, _, _ := strings.Cut(v, "="); slices.Contains(groupVariables, name) {
			return serve.Usage("--env %s: this tool sets %s, for each process another: use -n", v, name)
		}
		o.request.Env = append(o.request.Env, []byte(v))
	}
	return nil
}

// runStatus is the error of a command that ran programs.
func runStatus(status int, err error) error {
	switch {
	case err != nil:
		return &serve.StatusError{Status: failedBy(err), Err: err}
	case status != 0:
		return &serve.StatusError{Status: status}
	}
	return nil
}

// targetNodes are the nodes that processes are started on in turn.
func (o *runOptions) targetNodes(ctx context.Context, a *ask.Cluster) ([]*ask.Node, error) {
	if a.Named {
		return a.Chosen, nil
	}
	if o.count == 1 {
		return []*ask.Node{a.First}, nil
	}
	names := strings.FieldsFunc(string(o.request.GetHosts()), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(names) > 0 {
		at, err := a.Find(names)
		if err != nil {
			return nil, fmt.Errorf("%s=%q: %w", nodeproto.HostsEnv, o.request.GetHosts(), err)
		}
		return at, nil
	}
	at := a.SessionNodes(ctx, o.request.GetSession())
	if len(at) == 0 { // the start fails, and tells why
		at = a.All
	}
	// From this machine's on, wrapping around.
	if i := slices.Index(at, a.First); i > 0 {
		at = slices.Concat(at[i:], at[:i])
	}
	return at, nil
}

// unknown reports whether a failed start may have started something.
func unknown(err error) bool {
	return errors.Is(err, code.OutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)
}

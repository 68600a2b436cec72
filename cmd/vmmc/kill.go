package main

import (
	"context"
	"fmt"
	"strconv"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func parsePID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 {
		return 0, serve.Usage("pid %q: wanted a logical pid, as \"vmmc ps\" lists them", s)
	}
	return uint32(n), nil
}

func newKill() *cobra.Command {
	var ask askFlags
	var name string
	c := &cobra.Command{
		Use:   "kill [flags] SESSION [PID]",
		Short: "Signal a process of a session, or all of them",
		Long: `Send a signal to the process with the logical pid, and to what it has started in
its process group; without a pid, to all processes of the session. The session
stays.
` + sessionStatus,
		Example: `  vmmc kill test 1000123
  vmmc kill --signal KILL test`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			r := &nodev1.KillRequest{Session: args[0]}
			n, err := parseSignal(name)
			if err != nil {
				return err
			}
			r.Signal = int32(n)
			if len(args) == 2 {
				if r.Pid, err = parsePID(args[1]); err != nil {
					return err
				}
			}
			ctx, stop := context.WithTimeout(c.Context(), timeout.Control)
			defer stop()
			a, err := ask.open(ctx)
			if err != nil {
				return err
			}
			defer a.close()
			return a.kill(ctx, r)
		},
	}
	c.Flags().StringVarP(&name, "signal", "s", "TERM", "`signal` to send, by name or number")
	ask.add(c)
	offer(c, "signal", signalNames)
	c.ValidArgsFunction = ask.oneSession(ask.pids(true))
	return c
}

func (a *askAt) kill(ctx context.Context, r *nodev1.KillRequest) error {
	errs := a.each(func(_ int, n *asked) error {
		_, err := n.client.Kill(ctx, connect.NewRequest(r))
		return err
	})
	what := fmt.Sprintf("send %s to session %q", signalName(int(r.GetSignal())), r.GetSession())
	if r.GetPid() == 0 {
		return failure(what, a.somewhere(errs, code.NoSuchSession))
	}
	return failure(fmt.Sprintf("send %s to process %d of session %q", signalName(int(r.GetSignal())), r.GetPid(), r.GetSession()), onlyOne(errs))
}

// onlyOne are the errors of asking all nodes for what one of them has.
func onlyOne(errs []error) []error {
	var missing, other []error
	for _, err := range errs {
		switch {
		case err == nil:
			return nil
		case isMissing(err):
			missing = append(missing, err)
		default:
			other = append(other, err)
		}
	}
	if other != nil {
		return other
	}
	return mostTelling(missing)
}

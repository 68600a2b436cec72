package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// processRow is a process of a session.
type processRow struct {
	Node    string     `json:"node"`
	Session string     `json:"session"`
	PID     uint32     `json:"pid"`
	RealPID uint32     `json:"real_pid"`
	Group   uint32     `json:"group"`
	State   string     `json:"state"` // running, joined, exited, killed, left or lost
	Status  *int       `json:"exit_status,omitempty"`
	Signal  int        `json:"signal,omitempty"`
	Begun   time.Time  `json:"begun"`
	Ended   *time.Time `json:"ended,omitempty"`
	Output  int64      `json:"output_bytes"`
	Missing int64      `json:"missing_bytes,omitempty"`
	Why     string     `json:"missing_why,omitempty"`
	Command string     `json:"command"`
}

func newPs() *cobra.Command {
	var ask askFlags
	var asJSON, running bool
	c := &cobra.Command{
		Use:   "ps [SESSION]",
		Short: "List the processes of sessions",
		Long: `List the processes of a session, or of all your sessions, on all nodes or on those
that --node names: those that run, and those that have ended, with their exit
status or the signal that ended them. "lost" has ended when nobody could see how;
"joined" was started from a shell, and "left" is such a one that is gone. PID is
the logical pid, which is unique in the cluster.
` + sessionStatus,
		Example: `  vmmc ps
  vmmc ps --running test
  vmmc ps --json --node n1 test`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := context.WithTimeout(c.Context(), timeout.Control)
			defer stop()
			a, err := ask.open(ctx)
			if err != nil {
				return err
			}
			defer a.close()
			rows, errs := a.processes(ctx, args, running)
			if err := printProcesses(c.OutOrStdout(), rows, asJSON); err != nil {
				return err
			}
			return failure("list processes", errs)
		},
	}
	ask.add(c)
	c.ValidArgsFunction = ask.oneSession(cobra.NoFileCompletions)
	c.Flags().BoolVar(&running, "running", false, "only those that run")
	jsonFlag(c, &asJSON)
	return c
}

// processes lists those of the sessions, or of all if none are named.
func (a *askAt) processes(ctx context.Context, names []string, running bool) ([]processRow, []error) {
	found := make([][]processRow, len(a.chosen))
	errs := a.each(func(i int, n *asked) error {
		of := slices.Clone(names) // else all nodes would append to one array
		if len(names) == 0 {
			one := &askAt{chosen: []*asked{n}}
			list, errs := one.sessions(ctx)
			if errs[0] != nil {
				return errs[0]
			}
			for _, s := range list {
				of = append(of, s.Name)
			}
		}
		for _, name := range of {
			rows, err := n.processes(ctx, name, running)
			found[i] = append(found[i], rows...)
			// One that was deleted since it was listed has none.
			if err != nil && (len(names) > 0 || !errors.Is(told(n, err), code.NoSuchSession)) {
				return err
			}
		}
		return nil
	})
	all := []processRow{}
	for _, f := range found {
		all = append(all, f...)
	}
	return all, a.somewhere(errs, code.NoSuchSession)
}

func (n *asked) processes(ctx context.Context, session string, running bool) (rows []processRow, err error) {
	for r := (&nodev1.ListProcessesRequest{Session: session}); ; {
		l, err := n.client.ListProcesses(ctx, connect.NewRequest(r))
		if err != nil {
			return rows, err
		}
		for _, p := range l.Msg.GetProcesses() {
			if r.After = p.GetPid(); !running || !p.GetEnded() {
				rows = append(rows, n.row(session, p))
			}
		}
		if !l.Msg.GetMore() || len(l.Msg.GetProcesses()) == 0 {
			return rows, nil
		}
	}
}

func (n *asked) row(session string, p *nodev1.Process) processRow {
	r := processRow{
		Node: n.name, Session: session, PID: p.GetPid(), RealPID: p.GetRealPid(), Group: p.GetGroup(), State: "running",
		Begun: p.GetBegun().AsTime(), Output: p.GetOutputBytes(), Missing: p.GetMissingBytes(), Why: p.GetMissingWhy(), Command: p.GetCommand(),
	}
	if p.GetJoined() {
		r.State = "joined"
	}
	if !p.GetEnded() {
		return r
	}
	end := p.GetEndedAt().AsTime()
	r.Ended = &end
	switch {
	case p.GetJoined():
		r.State = "left"
	case p.GetLost():
		r.State = "lost"
	case p.GetSignal() != 0:
		r.State, r.Signal = "killed", int(p.GetSignal())
	default:
		status := int(p.GetExitStatus())
		r.State, r.Status = "exited", &status
	}
	return r
}

func printProcesses(w io.Writer, list []processRow, asJSON bool) error {
	if asJSON {
		return printJSON(w, struct {
			Processes []processRow `json:"processes"`
		}{list})
	}
	rows := [][]string{{"NODE", "SESSION", "PID", "REALPID", "GROUP", "STATE", "STATUS", "BEGUN", "COMMAND"}}
	num := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	for _, p := range list {
		status := ""
		switch {
		case p.Status != nil:
			status = strconv.Itoa(*p.Status)
		case p.Signal != 0:
			status = syscall.Signal(p.Signal).String()
		}
		rows = append(rows, []string{p.Node, p.Session, num(p.PID), num(p.RealPID), num(p.Group), p.State, status, when(p.Begun), p.Command})
	}
	return printTable(w, rows)
}

package ask

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Process is a process of a session.
type Process struct {
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

// Processes lists those of the sessions, or of all if none are named.
func (a *Cluster) Processes(
	ctx context.Context, names []string, running bool,
) ([]Process, []error) {
	found := make([][]Process, len(a.Chosen))
	errs := a.Each(func(i int, n *Node) error {
		of := slices.Clone(names) // else all nodes would append to one array
		if len(names) == 0 {
			one := &Cluster{Chosen: []*Node{n}}
			list, errs := one.Sessions(ctx)
			if errs[0] != nil {
				return errs[0]
			}
			for _, s := range list {
				of = append(of, s.Name)
			}
		}
		for _, name := range of {
			rows, err := n.Processes(ctx, name, running)
			found[i] = append(found[i], rows...)
			// One that was deleted since it was listed has none.
			if err != nil && (len(names) > 0 || !errors.Is(ErrorOf(n, err), code.NoSuchSession)) {
				return err
			}
		}
		return nil
	})
	all := []Process{}
	for _, f := range found {
		all = append(all, f...)
	}
	return all, a.Somewhere(errs, code.NoSuchSession)
}

// Processes lists those of one session.
func (n *Node) Processes(
	ctx context.Context, session string, running bool,
) (rows []Process, err error) {
	return n.processes(ctx, session, 0, running)
}

// Since lists those of one session that have greater pids.
func (n *Node) Since(ctx context.Context, session string, after uint32) ([]Process, error) {
	return within(ctx, func(ctx context.Context) ([]Process, error) {
		rows, err := n.processes(ctx, session, after, false)
		return rows, ErrorOf(n, err)
	})
}

func (n *Node) processes(
	ctx context.Context, session string, after uint32, running bool,
) (rows []Process, err error) {
	for r := (&nodev1.ListProcessesRequest{Session: session, After: after}); ; {
		l, err := n.Client.ListProcesses(ctx, connect.NewRequest(r))
		if err != nil {
			return rows, err
		}
		for _, p := range l.Msg.GetProcesses() {
			if r.After = p.GetPid(); !running || !p.GetEnded() {
				rows = append(rows, n.Row(session, p))
			}
		}
		if !l.Msg.GetMore() || len(l.Msg.GetProcesses()) == 0 {
			return rows, nil
		}
	}
}

// Row is a process as the tools show it.
func (n *Node) Row(session string, p *nodev1.Process) Process {
	r := Process{
		Node: n.Name, Session: session, PID: p.GetPid(), RealPID: p.GetRealPid(), Group: p.GetGroup(), State: "running",
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

// Kill sends a signal to one process or to all of a session.
func (a *Cluster) Kill(ctx context.Context, r *nodev1.KillRequest) error {
	errs := a.Each(func(_ int, n *Node) error {
		_, err := n.Client.Kill(ctx, connect.NewRequest(r))
		return err
	})
	what := fmt.Sprintf("send %v to session %q", syscall.Signal(r.GetSignal()), r.GetSession())
	if r.GetPid() == 0 {
		return Failure(what, a.Somewhere(errs, code.NoSuchSession))
	}
	return Failure(fmt.Sprintf("send %v to process %d of session %q", syscall.Signal(r.GetSignal()), r.GetPid(), r.GetSession()), a.onlyOne(errs, r.GetSession(), r.GetPid(), func(i int) bool {
		_, err := a.Chosen[i].Now(ctx, r.GetSession(), r.GetPid())
		return err == nil
	}))
}

// Newcomers finds the processes of a session on one node as they begin.
type Newcomers struct {
	node    *Node
	session string
	after   uint32               // pids up to here are known
	given   map[uint32]time.Time // greater ones that Next has given, and since when they are known
}

// newcomerTime is more than a program takes from its pid to being listed, or to failing.
const newcomerTime = 2 * timeout.Control

// Newcomers begins with no process known.
func (n *Node) Newcomers(session string) *Newcomers { return &Newcomers{node: n, session: session} }

// Next gives the processes that it has not given yet. A program whose file is slow to open is
// listed after one with a greater pid. So pids below one that is known are asked for again, for
// newcomerTime.
func (s *Newcomers) Next(ctx context.Context) (list []Process, err error) {
	rows, err := s.node.Since(ctx, s.session, s.after)
	if err != nil {
		return nil, err
	}
	now, first := time.Now(), s.given == nil
	if first {
		s.given = map[uint32]time.Time{}
	}
	for _, p := range rows {
		if _, known := s.given[p.PID]; known {
			continue
		}
		if list, s.given[p.PID] = append(list, p), now; first && p.Begun.Before(now) {
			s.given[p.PID] = p.Begun // a session may have thousands that ended long ago
		}
	}
	for pid, since := range s.given {
		if now.Sub(since) >= newcomerTime {
			s.after = max(s.after, pid)
		}
	}
	for pid := range s.given {
		if pid <= s.after {
			delete(s.given, pid)
		}
	}
	return list, nil
}

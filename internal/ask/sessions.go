package ask

import (
	"context"
	"errors"
	"fmt"
	"io"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Session is a session on a node.
type Session struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	User      string `json:"user"`
	Drive     string `json:"drive"`
	Share     string `json:"share,omitempty"`
	Base      string `json:"base"`
	Output    string `json:"output"`
	Processes int    `json:"processes"` // that run
	Cgroup    string `json:"cgroup,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Sessions lists those of the chosen nodes, node by node.
func (a *Cluster) Sessions(ctx context.Context) ([]Session, []error) {
	found := make([][]Session, len(a.Chosen))
	errs := a.Each(func(i int, n *Node) error {
		for r := (&nodev1.ListSessionsRequest{}); ; {
			l, err := n.Client.ListSessions(ctx, connect.NewRequest(r))
			if err != nil {
				return err
			}
			for _, s := range l.Msg.GetSessions() {
				r.After = s.GetName()
				found[i] = append(found[i], Session{
					Node: n.Name, Name: s.GetName(), User: s.GetUser(), Drive: s.GetDrive(), Share: s.GetShare(), Base: s.GetBase(),
					Output: s.GetOutputDirectory(), Processes: int(s.GetProcesses()), Cgroup: s.GetCgroup(), Error: s.GetError(),
				})
			}
			if !l.Msg.GetMore() || len(l.Msg.GetSessions()) == 0 {
				return nil
			}
		}
	})
	all := []Session{} // none are [] in JSON
	for _, f := range found {
		all = append(all, f...)
	}
	return all, errs
}

// AddSession makes it everywhere or nowhere.
func (a *Cluster) AddSession(ctx context.Context, r *nodev1.AddSessionRequest) error {
	made := make([]bool, len(a.Chosen))
	errs := a.Each(func(i int, n *Node) error {
		_, err := n.Client.AddSession(ctx, connect.NewRequest(r))
		made[i] = err == nil
		return err
	})
	err := Failure(fmt.Sprintf("make session %q", r.Name), errs)
	if err == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*timeout.Control)
	defer stop()
	undone := a.Each(func(i int, n *Node) error {
		if !made[i] {
			return nil
		}
		_, err := n.Client.DeleteSession(ctx, connect.NewRequest(&nodev1.DeleteSessionRequest{Name: r.Name}))
		if errors.Is(Told(n, err), code.NoSuchSession) {
			return nil
		}
		return err
	})
	if left := Failure("take it back where it was made; delete it there", undone); left != nil {
		return errors.Join(err, left)
	}
	return err
}

// DeleteSession deletes it where it is. What nodes have to say beside that goes to
// notices, a line each.
func (a *Cluster) DeleteSession(ctx context.Context, name string, notices io.Writer) error {
	said := make([]string, len(a.Chosen))
	errs := a.Each(func(i int, n *Node) error {
		d, err := n.Client.DeleteSession(ctx, connect.NewRequest(&nodev1.DeleteSessionRequest{Name: name}))
		if err == nil {
			said[i] = d.Msg.GetNotice()
		}
		return err
	})
	for _, s := range said {
		if s != "" {
			fmt.Fprintln(notices, "vmmc:", s)
		}
	}
	return Failure(fmt.Sprintf("delete session %q", name), a.Somewhere(errs, code.NoSuchSession))
}

package ask

import (
	"context"
	"errors"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// IsMissing reports whether a node has no such process, or no such session.
func IsMissing(err error) bool {
	return errors.Is(err, code.NoSuchProcess) || errors.Is(err, code.NoSuchSession)
}

// mostSpecific leaves out the nodes without the session if others have it, and
// all but one that say the same.
func mostSpecific(errs []error) []error {
	for _, err := range errs {
		if errors.Is(err, code.NoSuchProcess) {
			return []error{err}
		}
	}
	return errs[:min(1, len(errs))]
}

// Having finds the node that has a process.
func (a *Cluster) Having(ctx context.Context, session string, pid uint32) (*Node, error) {
	var mu sync.Mutex
	var found *Node
	errs := a.Each(func(_ int, n *Node) error {
		_, err := n.Client.Wait(ctx, connect.NewRequest(&nodev1.WaitRequest{Session: session, Pid: pid}))
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			found = n
		}
		return err
	})
	if found != nil {
		return found, nil
	}
	return nil, Failure("find the process", a.onlyOne(errs, session, pid, nil))
}

// onlyOne is OnlyOne about a process. known says whether a node has it, which has ended; of a
// process that none has, no node's name is told.
func (a *Cluster) onlyOne(
	errs []error, session string, pid uint32, known func(i int) bool,
) []error {
	out := OnlyOne(errs)
	if len(out) != 1 || !errors.Is(out[0], code.NoSuchProcess) {
		return out
	}
	var asked []string
	for i, n := range a.Chosen {
		switch {
		case !errors.Is(errs[i], code.NoSuchProcess):
			continue
		case known != nil && known(i):
			return []error{errs[i]}
		}
		asked = append(asked, n.Name)
	}
	if len(asked) < 2 {
		return out
	}
	return []error{code.New(code.NoSuchProcess, "session %q has no process %d on any of its nodes, which are %s", session, pid, strings.Join(asked, ", "))}
}

// OnlyOne are the errors of asking all nodes for what one of them has.
func OnlyOne(errs []error) []error {
	var missing, other []error
	for _, err := range errs {
		switch {
		case err == nil:
			return nil
		case IsMissing(err):
			missing = append(missing, err)
		default:
			other = append(other, err)
		}
	}
	if other != nil {
		return other
	}
	return mostSpecific(missing)
}

// Somewhere makes no error of what is missing on some nodes, if it was there on
// one and the nodes were not named.
func (a *Cluster) Somewhere(errs []error, missing code.Code) []error {
	var out []error
	found := false
	var none error
	for _, err := range errs {
		switch {
		case err == nil:
			found = true
		case errors.Is(err, missing):
			none = err
			if a.Named {
				out = append(out, err)
			}
		default:
			out = append(out, err)
		}
	}
	if !found && out == nil && none != nil {
		out = append(out, none)
	}
	return out
}

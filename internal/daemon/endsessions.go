package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// EndSessions ends and removes all sessions of a node that does not run.
func EndSessions(ctx context.Context, name, state string) error {
	n := &Node{cfg: Config{Name: name, State: state, Log: slog.New(slog.DiscardHandler)}}
	n.openLogs()
	n.roster.Store(&roster{})
	n.ctx, n.cancel = context.WithCancel(ctx)
	defer n.sessions.close()
	defer n.wg.Wait()
	defer n.cancel()
	if err := n.recallSessions(); err != nil {
		return err
	}
	var all error
	for _, s := range n.sessionsAfter("") {
		if _, err := n.deleteSession(ctx, s); err != nil && n.sessionNamed(s.Name) != nil {
			all = errors.Join(all, fmt.Errorf("delete session %q: %w", s.Name, err))
		}
	}
	return all
}

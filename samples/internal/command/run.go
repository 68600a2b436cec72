package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/samples/internal/ranks"
)

// Run makes n processes of the program, all with the same arguments, and does work
// in each. When it returns, the processes that it has spawned have ended.
func (f *Flags) Run(
	c *cobra.Command, n int, args []string, work func(context.Context, *ranks.Member) error,
) error {
	return f.Join(c, func(ctx context.Context, m *ranks.Member) error {
		if err := f.start(m, n, args); err != nil {
			return err
		}
		return work(ctx, m)
	})
}

func (f *Flags) start(m *ranks.Member, n int, args []string) error {
	if f.peer {
		return m.Follow()
	}
	return m.Lead(n, f.ForPeers(args...))
}

// Join does work in this process, as a member of no run yet.
func (f *Flags) Join(c *cobra.Command, work func(context.Context, *ranks.Member) error) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, end := context.WithTimeoutCause(ctx, f.Timeout, fmt.Errorf("not done after %v (--timeout)", f.Timeout))
	defer end()
	m, ctx, err := ranks.Open(ctx)
	if err != nil {
		return err
	}
	return m.End(work(ctx, m))
}

// Peer reports whether a process of the same program has spawned this one.
func (f *Flags) Peer() bool { return f.peer }

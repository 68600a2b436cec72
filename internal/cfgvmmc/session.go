package cfgvmmc

import (
	"context"
	"strings"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func add(c *call) error {
	// Before anything that takes time.
	password, err := readPassword(c, c.args[2])
	if err != nil {
		return err
	}
	r := &nodev1.AddSessionRequest{
		Name: c.args[0], User: c.args[1], Drive: slashes(c.args[3]), Share: slashes(c.args[4]), OutputDirectory: slashes(c.args[5]),
	}
	// The user is the programs' too; only with a password is it surely the server's.
	if mount.IsRemote(r.Share) &&
		(r.User != "" && strings.HasPrefix(r.Share, "//") || password != "") {
		r.Credentials = &nodev1.Credentials{User: r.User, Password: password}
	}
	return c.ask(2*timeout.Control+timeout.Mount, func(ctx context.Context, a *ask.Cluster) error { return a.AddSession(ctx, r) })
}

func del(c *call) error {
	return c.ask(6*timeout.Stop, func(ctx context.Context, a *ask.Cluster) error {
		return a.DeleteSession(ctx, c.args[0], c.ErrOrStderr())
	})
}

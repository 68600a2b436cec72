package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/view"
)

// start runs this program again as a replica, on p's node, and imports its table by its name. The
// replica ends with end, or when this process dies.
func start(
	ctx context.Context, p *vmmc.Process, name string,
) (r *view.Remote[slot], end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	c := exec.CommandContext(ctx, self, name)
	c.Env = append(os.Environ(), p.Environ()...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(); err != nil {
		return nil, nil, err
	}
	end = func() {
		_ = in.Close()
		if err := c.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "replica:", err)
		}
	}
	im, err := p.ImportName(ctx, name) // waits until the replica has published it
	if err == nil {
		r, err = view.RemoteOf[slot](im)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return r, end, nil
}

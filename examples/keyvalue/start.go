package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/vmmc-go/vmmc"
)

// start runs this program again as a replica, on p's node, and imports its
// table. The replica ends with end, or when this process dies.
func start(ctx context.Context, p *vmmc.Process) (im *vmmc.Import, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	c := exec.CommandContext(ctx, self, "replica")
	c.Env = append(os.Environ(), p.Environ()...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := c.StdoutPipe()
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
	var pid vmmc.PID
	if _, err := fmt.Fscan(out, &pid); err != nil {
		end()
		return nil, nil, fmt.Errorf("the replica did not say who it is: %w", err)
	}
	if im, err = p.Import(ctx, p.Node(), pid, tableID); err != nil {
		end()
		return nil, nil, err
	}
	return im, end, nil
}

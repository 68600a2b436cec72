package demo

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/childproc"
)

// Child is the hidden command in which the tool runs itself.
const Child = "demo-child"

// startPeer starts a process in a role on a node and gives its logical pid.
func startPeer(
	f *childproc.Group, role, socket string, args ...string,
) (*childproc.Child, vmmc.PID, error) {
	c, err := f.Start(nil, append([]string{Child, role, socket}, args...)...)
	if err != nil {
		return nil, 0, err
	}
	line, err := c.Out.ReadString('\n')
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("process %q of the demo ended early", role), c.Wait())
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(line), 10, 32)
	return c, vmmc.PID(pid), err
}

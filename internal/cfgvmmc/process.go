package cfgvmmc

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func run(c *call) error {
	directory, program := slashes(c.args[1]), slashes(c.args[2])
	if program == "" || strings.HasSuffix(program, "/") {
		return serve.Usage("programPath %q: wanted the name of a file", c.args[2])
	}
	r := &nodev1.RunRequest{Session: c.args[0], Directory: []byte(directory), Hosts: []byte(env.Get(nodeproto.HostsEnv))}
	for _, s := range c.args[3:] {
		r.Args = append(r.Args, []byte(s))
	}
	return c.ask(timeout.Control, func(ctx context.Context, a *ask.Cluster) error {
		n := a.Chosen[0]
		p, err := start(ctx, n, r, fromDirectory(directory, program))
		if err != nil {
			return ask.Failure(fmt.Sprintf("run %s in session %q", c.args[2], r.Session), []error{err})
		}
		fmt.Fprintf(c.OutOrStdout(), "%s %d\n", n.Name, p.GetPid())
		return nil
	})
}

// fromDirectory is a path of the drive as the way there from a directory of the
// drive: to a node an absolute path is its own, and a bare name may be elsewhere in
// its PATH.
func fromDirectory(directory, program string) string {
	if !strings.HasPrefix(program, "/") {
		return "./" + program
	}
	up := 0
	if d := strings.Trim(path.Clean("/"+directory), "/"); d != "" {
		up = strings.Count(d, "/") + 1
	}
	return "./" + strings.Repeat("../", up) + strings.TrimLeft(program, "/")
}

// start runs the program, under its name or, if that is no program's, without the
// suffix that Windows wants.
func start(
	ctx context.Context, n *ask.Node, r *nodev1.RunRequest, program string,
) (*nodev1.Process, error) {
	var errs []error
	for _, name := range names(program) {
		r.Path = []byte(name)
		a, err := n.Client.Run(ctx, connect.NewRequest(r))
		if err == nil {
			return a.Msg.GetProcess(), nil
		}
		err = ask.ErrorOf(n, err)
		if len(errs) == 0 || errs[0].Error() != err.Error() {
			errs = append(errs, err)
		}
		if !errors.Is(err, code.BadArg) {
			break // it is not about the name
		}
	}
	return nil, errors.Join(errs...)
}

// names are those that a program may have.
func names(program string) []string {
	all := []string{program}
	for _, suffix := range []string{".exe", ".bat"} {
		if at := len(program) - len(suffix); at > 0 && program[at-1] != '/' &&
			strings.EqualFold(program[at:], suffix) {
			all = append(all, program[:at])
		}
	}
	return all
}

// kill ends at once, as on the manual's system.
func kill(c *call) error {
	r := &nodev1.KillRequest{Session: c.args[0], Signal: 9}
	if len(c.args) > 1 {
		pid, err := strconv.ParseUint(c.args[1], 10, 32)
		if err != nil || pid == 0 {
			return serve.Usage("pid %q: wanted a logical pid, as \"run\" prints it", c.args[1])
		}
		r.Pid = uint32(pid)
	}
	return c.ask(timeout.Control, func(ctx context.Context, a *ask.Cluster) error { return a.Kill(ctx, r) })
}

package vmmc

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
)

// Spawn starts a program on a node (vmmc_Spawn) and returns once it runs, with
// the logical pid that it will have. An Import from that pid may follow at once:
// it waits until the program has joined, and fails with [ErrNoSuchProcess] if it
// ends before. The program's own [Process.Parent] is this process.
//
// args are the arguments from the first one on; argument 0 is path. The program
// starts in this process's working directory, which must exist on that node, and
// a relative path is relative to it; $PATH is not searched. It runs as the same
// user: on this node with the very rights that this process joined with, on
// another one as the user of the same name there. A daemon that is not run by
// root starts programs for its own user only, and no daemon starts programs as
// root for other nodes unless it was told to.
//
// This process's environment is not handed on. The program gets PATH, HOME, USER,
// LOGNAME and the like as the node has them, the session of this process as
// VMMCSESSION, its VMMCHOSTS, and the node's socket as VMMC_SOCKET. Its standard
// input is empty, and what it prints goes nowhere.
//
// The program outlives this process. It ends with its node's daemon, or the
// embedded node: on an orderly stop that sends SIGTERM to the program's process
// group, and soon SIGKILL. A daemon that crashed leaves it running.
//
// That is so where the session is a name. If the node has a session of this name
// (vmmc session add), the program runs in the session of that name on the other
// node, which must be there, as the session's user: in the same place of the
// session's drive, which must be this process's too, and so for a path below it.
// What it prints is kept, and it ends with the session and not with the daemon.
//
// Errors: [ErrBadArg] for an empty path, a zero byte, more than 32 KiB of
// arguments, a directory or program that is not there or cannot be executed (the
// text says which); [ErrNotInHandler]; [ErrNoRights]; [ErrNoSuchNode]; [ErrNoSuchSession];
// [ErrUnreachable]; [ErrNoMem]. If an error is also [ErrOutcomeUnknown], as it is when the context
// ends or a node is lost meanwhile, the program may run all the same.
// Spawn never tries twice by itself.
func (p *Process) Spawn(ctx context.Context, node NodeID, path string, args ...string) (PID, error) {
	if err := inHandler(fmt.Sprintf("spawn %q on node %q", path, node.name)); err != nil {
		return 0, err
	}
	if ctx == nil {
		return 0, fail(fmt.Sprintf("spawn %q on node %q", path, node.name), errNilContext)
	}
	pid, err := p.spawn(ctx, node, path, args)
	if err != nil {
		return 0, fail(fmt.Sprintf("spawn %q on node %q", path, node.name), err)
	}
	p.log.Debug("spawned", "on", node, "process", pid, "path", path)
	return PID(pid), nil
}

func (p *Process) spawn(ctx context.Context, node NodeID, path string, args []string) (uint32, error) {
	if err := p.usable(ctx); err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("the working directory: %w", err)
	}
	r := local.SpawnRequest{Node: node.name, Path: []byte(path), Directory: []byte(dir), Hosts: []byte(p.session.env)}
	for _, a := range args {
		r.Args = append(r.Args, []byte(a))
	}
	if err := r.Check(""); err != nil {
		return 0, err
	}
	c, err := p.node.wait(ctx)
	if err != nil {
		return 0, err
	}
	s, fds, err := local.Ask[local.Spawned](ctx, c, local.Spawn, r, nil) // once
	closeAll(fds)
	if err != nil && (ctx.Err() != nil || errors.Is(err, code.NoDaemon)) {
		err = fmt.Errorf("%w (the program may run: %w)", err, ErrOutcomeUnknown)
	}
	return s.PID, err
}

// usable says whether anything may be asked at all.
func (p *Process) usable(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return code.New(code.Closed, "the process is closed")
	}
	return ctx.Err()
}

// Parent is the process that spawned this one (vmmc_Parent); it may have ended.
// The error is [ErrNoParent] for a process that was not started by
// [Process.Spawn]. Programs that a spawned one starts in other ways are not
// spawned, even with its environment.
func (p *Process) Parent() (ProcessID, error) {
	if p.parent.Node == "" {
		return ProcessID{}, failf("parent", ErrNoParent, "no other process spawned this one")
	}
	return ProcessID{NodeID{p.parent.Node}, PID(p.parent.PID)}, nil
}

package mpiabi

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Process Creation and Management".

const (
	maxPortName = 1024 // MPI_MAX_PORT_NAME
	maxWord     = 1 << 17
	maxWords    = 1 << 16
)

func init() {
	register("MPI_Comm_get_parent", func(e *Env, a *arguments) error { return a.setHandle(0, e.parent()) })
	register("MPI_Comm_disconnect", disconnect)
	register("MPI_Open_port", func(e *Env, a *arguments) error {
		if err := e.optionalInfo(a, 0); err != nil {
			return err
		}
		if err := a.setCString(1, ""); err != nil { // A port that no one knows would stay open.
			return err
		}
		port, err := e.self.c.OpenPort(a.ctx)
		if err != nil {
			return err
		}
		return a.setCString(1, port)
	})
	register("MPI_Close_port", func(e *Env, a *arguments) error {
		port, err := a.cString(0, maxPortName)
		if err != nil {
			return err
		}
		return e.self.c.ClosePort(port)
	})
	register("MPI_Comm_accept", func(e *Env, a *arguments) error { return e.meet(a, (*mpi.Comm).Accept) })
	register("MPI_Comm_connect", func(e *Env, a *arguments) error { return e.meet(a, (*mpi.Comm).Connect) })
	register("MPI_Publish_name", func(e *Env, a *arguments) error {
		return e.named(a, func(service, port string) error { return e.self.c.PublishName(a.ctx, service, port) })
	})
	register("MPI_Unpublish_name", func(e *Env, a *arguments) error {
		return e.named(a, func(service, port string) error { return e.self.c.UnpublishName(service, port) })
	})
	register("MPI_Lookup_name", func(e *Env, a *arguments) error {
		service, err := a.cString(0, maxWord)
		if err != nil {
			return err
		}
		if err := e.optionalInfo(a, 1); err != nil {
			return err
		}
		port, err := e.self.c.LookupName(a.ctx, service)
		if err != nil {
			return err
		}
		return a.setCString(2, port)
	})
	register("MPI_Comm_join", join)
	register("MPI_Comm_spawn", spawn)
	register("MPI_Comm_spawn_multiple", spawnMultiple)
}

// parent is the handle of the intercommunicator with the job that has spawned this one, until the program
// has disconnected it.
func (e *Env) parent() Handle {
	e.parentMu.Lock()
	defer e.parentMu.Unlock()
	c := e.world.c.Parent()
	if c == nil {
		return commNull
	}
	if e.parentComm == 0 {
		e.parentComm = e.addComm(c, nil, errorsAreFatal).h
	}
	return e.parentComm
}

func disconnect(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	c, ok := lookup[*comm](&e.handles, h)
	if !ok {
		return fail(a.name(0), errComm, "%#x is no communicator that can be disconnected", uint64(h))
	}
	// Nonblocking collectives of the communicator are over when the call is.
	c.queueMu.Lock()
	last := c.queue
	c.queueMu.Unlock()
	if last != nil {
		select {
		case <-last:
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
	if err := c.attributes.removeAll(e, h); err != nil {
		return err
	}
	if err := c.c.Disconnect(a.ctx); err != nil {
		return err
	}
	c.freeHidden()
	remove[*comm](&e.handles, h)
	return a.setHandle(0, commNull)
}

// optionalInfo checks an argument that is an info object, or MPI_INFO_NULL.
func (e *Env) optionalInfo(a *arguments, i int) error {
	if a.Handle(i) == infoNull {
		return nil
	}
	_, err := e.info(a, i)
	return err
}

// meet is MPI_Comm_accept and MPI_Comm_connect. The port matters at the root only.
func (e *Env) meet(a *arguments, f func(c *mpi.Comm, ctx context.Context, port string, root int) (*mpi.Comm, error)) error {
	c, err := e.comm(a, 3)
	if err != nil {
		return err
	}
	port := ""
	if a.Int(2) == c.c.Rank() {
		if port, err = a.cString(0, maxPortName); err != nil {
			return err
		}
		if err := e.optionalInfo(a, 1); err != nil {
			return err
		}
	}
	// The call is a collective, so a wrong address must be found before.
	if err := a.setHandle(4, commNull); err != nil {
		return err
	}
	made, err := f(c.c, a.ctx, port, a.Int(2))
	if err != nil {
		return err
	}
	return a.setHandle(4, e.addComm(made, nil, Handle(c.handler.Load())).h)
}

// named is a call with the name of a service, an info object, and a port.
func (e *Env) named(a *arguments, f func(service, port string) error) error {
	service, err := a.cString(0, maxWord)
	if err != nil {
		return err
	}
	if err := e.optionalInfo(a, 1); err != nil {
		return err
	}
	port, err := a.cString(2, maxPortName)
	if err != nil {
		return err
	}
	return f(service, port)
}

func join(e *Env, a *arguments) error {
	if err := a.setHandle(1, commNull); err != nil {
		return err
	}
	socket, err := unix.BorrowSocket(a.Int(0))
	if err != nil {
		return fail(a.name(0), errArg, "descriptor %d is no connected socket: %w", a.Int(0), err)
	}
	defer func() { _ = socket.Close() }()
	made, err := e.self.c.Join(a.ctx, socket)
	if err != nil {
		return err
	}
	return a.setHandle(1, e.addComm(made, nil, Handle(e.self.handler.Load())).h)
}

// words are the strings of an array that NULL ends. The array is MPI_ARGV_NULL, or at an address that argument i
// has told.
func (a *arguments) words(i int, addr uint64) (list []string, err error) {
	if addr == 0 {
		return nil, nil
	}
	err = a.access(i, func() {
		for n := uint64(0); n < maxWords; n++ {
			word := *at[uint64](addr + 8*n)
			if word == 0 {
				return
			}
			list = append(list, cStringAt(word, maxWord))
		}
	})
	return list, err
}

// command is what a program and its info object say.
func (e *Env) command(a *arguments, infoArg int, h Handle, path string, args []string, n int) (mpi.Command, error) {
	cmd := mpi.Command{Path: path, Args: args, N: n}
	if h == infoNull {
		return cmd, nil
	}
	in, err := e.infoOf(a, infoArg, h)
	if err != nil {
		return cmd, err
	}
	in = in.clone()
	cmd.Dir = in.values["wdir"]
	cmd.Hosts = strings.FieldsFunc(in.values["host"], func(r rune) bool { return r == ',' || r == ' ' })
	if dirs := in.values["path"]; dirs != "" && !strings.Contains(path, "/") {
		for _, dir := range filepath.SplitList(dirs) {
			if found, err := exec.LookPath(filepath.Join(dir, path)); err == nil {
				cmd.Path = found
				break
			}
		}
	}
	return cmd, nil
}

func spawn(e *Env, a *arguments) error {
	return e.spawn(a, 4, func() ([]mpi.Command, error) {
		path, err := a.cString(0, maxWord)
		if err != nil {
			return nil, err
		}
		args, err := a.words(1, a.Addr(1))
		if err != nil {
			return nil, err
		}
		cmd, err := e.command(a, 3, a.Handle(3), path, args, a.Int(2))
		return []mpi.Command{cmd}, err
	})
}

func spawnMultiple(e *Env, a *arguments) error {
	return e.spawn(a, 5, func() ([]mpi.Command, error) {
		n, err := a.count(0)
		if err != nil {
			return nil, err
		}
		if n > mpi.MaxSpawned {
			return nil, fail(a.name(0), errArg, "it is %d, want at most %d", n, mpi.MaxSpawned)
		}
		paths, err := a.handles(1, n) // Handles and addresses have 64 bits.
		if err != nil {
			return nil, err
		}
		argvs := make([]Handle, n)
		if a.Addr(2) != 0 { // MPI_ARGVS_NULL
			if argvs, err = a.handles(2, n); err != nil {
				return nil, err
			}
		}
		counts, err := a.ints(3, n)
		if err != nil {
			return nil, err
		}
		infos, err := a.handles(4, n)
		if err != nil {
			return nil, err
		}
		cmds := make([]mpi.Command, n)
		for i := range cmds {
			if paths[i] == 0 {
				return nil, fail(a.name(1), errArg, "command %d is NULL, want a string", i)
			}
			var path string
			if err := a.access(1, func() { path = cStringAt(uint64(paths[i]), maxWord) }); err != nil {
				return nil, err
			}
			args, err := a.words(2, uint64(argvs[i]))
			if err != nil {
				return nil, err
			}
			if cmds[i], err = e.command(a, 4, infos[i], path, args, counts[i]); err != nil {
				return nil, err
			}
		}
		return cmds, nil
	})
}

// spawn starts programs. Argument root is followed by the communicator, the new one, and the error codes. read
// reads the commands, which matter at the root only. If the root's cannot be read the others hear of it.
func (e *Env) spawn(a *arguments, root int, read func() ([]mpi.Command, error)) error {
	c, err := e.comm(a, root+1)
	if err != nil {
		return err
	}
	if err := a.setHandle(root+2, commNull); err != nil {
		return err
	}
	var cmds []mpi.Command
	var bad error
	if a.Int(root) == c.c.Rank() {
		if cmds, bad = read(); bad != nil {
			cmds = nil // No command is an error of Spawn, at all ranks.
		}
	}
	made, err := c.c.Spawn(a.ctx, a.Int(root), cmds...)
	if bad != nil && err != nil {
		return bad
	}
	if err != nil {
		return errors.Join(err, a.spawnCodes(root+3, err))
	}
	if a.Addr(root+3) != 0 { // MPI_ERRCODES_IGNORE
		if err := a.storeInts(root+3, make([]int, made.RemoteSize())); err != nil {
			return err
		}
	}
	return a.setHandle(root+2, e.addComm(made, nil, Handle(c.handler.Load())).h)
}

// spawnCodes stores why programs have not started: those that were ended as another one could not be started
// have failed too. Only the root knows.
func (a *arguments) spawnCodes(i int, err error) error {
	var failed *mpi.SpawnError
	if a.Addr(i) == 0 || !errors.As(err, &failed) {
		return nil
	}
	codes := make([]int, len(failed.Errs))
	for k := range codes {
		codes[k] = int(errSpawn)
	}
	return a.storeInts(i, codes)
}

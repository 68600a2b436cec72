package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/starter"
)

// MaxSpawned is how many programs one call of Spawn starts at most.
//
// Experimental: it may change in any release.
const MaxSpawned = nodeproto.MaxSpawned

// Command is what [Comm.Spawn] starts.
//
// Experimental: it may change in any release.
type Command struct {
	Path  string   // without a slash it is found in PATH
	Args  []string // from argument 1 on
	N     int      // how many
	Soft  []int    // smaller numbers that do if not all N can be started (info key soft)
	Dir   string   // their working directory; "": that of the rank that spawns (info key wdir)
	Env   []string // variables of theirs, as "NAME=value", beside those that Spawn tells of
	Hosts []string // names of nodes, in turn; none: that of the rank that spawns (info key host)
}

// SpawnError is the error of a [Comm.Spawn] that has started no job. Errs has for each program why it
// could not be started, or has ended, and nil for those that were ended because of these
// (array_of_errcodes).
//
// Experimental: it may change in any release.
type SpawnError struct{ Errs []error }

// Error says it of the first one.
//
// Experimental: it may change in any release.
func (e *SpawnError) Error() string {
	n, first := 0, ""
	for rank, err := range e.Errs {
		if err == nil {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("program %d: %v", rank, err)
		}
	}
	if n > 1 {
		first += fmt.Sprintf(", and %d more", n-1)
	}
	return first + "; the others were ended"
}

// Unwrap gives the errors.
//
// Experimental: it may change in any release.
func (e *SpawnError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.Errs), func(err error) bool { return err == nil })
}

// beacon is the name of an export of the rank that spawns, until its children are connected: they hear
// of its end by that.
func beacon(id string) string { return ".mpi.spawn." + id }

// spawning is a Spawn that is under way, at the root.
type spawning struct {
	p        *vmmc.Process
	children nodeproto.Group // the job of the children
	both     nodeproto.Group // that, behind the ranks that spawn
	first    int             // of the children in both
	ended    []chan struct{} // by child: it has ended
	errs     []error         // by child; that of one that has ended is set before the channel is closed
	kill     []func()
	module   []string // the variable of the module that this job's ranks were told to use, if any
	beacon   *vmmc.Export
	mem      *vmmc.Memory
}

// environ is what the child of a rank finds.
func (s *spawning) environ(rank, app int) []string {
	own := []string{
		nodeproto.GroupEnv + "=" + s.children.String(),
		nodeproto.RankEnv + "=" + strconv.Itoa(rank),
		nodeproto.SizeEnv + "=" + strconv.Itoa(s.children.Size()),
		nodeproto.AppNumEnv + "=" + strconv.Itoa(app),
		nodeproto.ParentEnv + "=" + s.children.ID + ";" + s.p.Node().String() + ";" + strconv.Itoa(s.first) + ";" + s.both.String(),
	}
	if n := env.Get(nodeproto.UniverseEnv); n != "" {
		own = append(own, nodeproto.UniverseEnv+"="+n)
	}
	return own
}

// inherited is this program's environment without what says which rank it is.
func inherited() []string {
	return slices.DeleteFunc(env.All(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		own := []string{nodeproto.TokenEnv, nodeproto.Env, nodeproto.GroupEnv, nodeproto.RankEnv, nodeproto.SizeEnv, nodeproto.ParentEnv, nodeproto.AppNumEnv, nodeproto.LifelineEnv}
		return slices.Contains(own, name) || slices.Contains(otherLaunchers, name) || strings.HasPrefix(name, "PMI_")
	})
}

// startHere starts a child on this node. It is in this rank's process group, so that what ends the rank's
// group ends it.
func (s *spawning) startHere(rank, app int, c *Command) error {
	cmd := exec.Command(c.Path, c.Args...) //nolint:noctx // it ends when it likes
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.Dir, os.Stdout, os.Stderr
	cmd.Env = slices.Concat(inherited(), s.module, c.Env, s.p.Environ(), s.environ(rank, app))
	cmd.Env = append(cmd.Env, lifelines().give(&cmd.ExtraFiles)...)
	if err := starter.Start(cmd); err != nil {
		return err
	}
	s.kill[rank] = func() { _ = cmd.Process.Kill() }
	go func() { // ends with the child
		err := cmd.Wait()
		s.errs[rank] = fmt.Errorf("it has ended before it was connected: %s", cmd.ProcessState)
		if cmd.ProcessState == nil {
			s.errs[rank] = err
		}
		close(s.ended[rank])
	}()
	return nil
}

// neverExported is the id of an import that waits for the end of its exporter.
const neverExported = 0xEFFFFFFF

// startThere starts a child on another node.
func (s *spawning) startThere(ctx context.Context, rank, app int, c *Command) error {
	node, err := s.p.NameToNode(s.children.NodeOf(rank))
	if err != nil {
		return err
	}
	// The shell, as env takes a path with "=" for a variable.
	args := slices.Concat([]string{"--"}, s.module, c.Env, s.environ(rank, app),
		[]string{"/bin/sh", "-c", `cd -- "$0" && exec "$@"`, cmp.Or(c.Dir, "."), c.Path}, c.Args)
	pid, err := s.p.Spawn(ctx, node, "/usr/bin/env", args...)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.kill[rank] = stop
	go func() { // ends with the child, or with the Spawn
		_, err := s.p.Import(watching, node, pid, neverExported)
		s.errs[rank] = fmt.Errorf("it cannot be started on node %v, or has ended before it was connected: %w", node, err)
		if watching.Err() == nil {
			close(s.ended[rank])
		}
	}()
	return nil
}

// start starts all children, and waits until they have joined.
func (s *spawning) start(ctx context.Context, cmds []Command) error {
	var failed []error
	rank := 0
	for app := range cmds {
		for range cmds[app].N {
			err := error(nil)
			if s.children.NodeOf(rank) == s.p.Node().String() {
				err = s.startHere(rank, app, &cmds[app])
			} else {
				err = s.startThere(ctx, rank, app, &cmds[app])
			}
			if err != nil {
				failed = make([]error, s.children.Size())
				failed[rank] = err
				return &Error{Arg: "command", Class: ErrSpawn, Err: &SpawnError{failed}}
			}
			rank++
		}
	}
	for rank := range s.children.Size() {
		if err := s.await(ctx, rank); err != nil {
			return err
		}
	}
	return nil
}

// await waits until a child has joined the group of both jobs.
func (s *spawning) await(ctx context.Context, rank int) error {
	joining, stop := context.WithCancel(ctx)
	defer stop()
	over := make(chan struct{})
	var failed error // set before over is closed
	go func() {
		defer close(over)
		at := s.first + rank
		name := nodeproto.NameRef{Node: s.both.NodeOf(at), Name: s.both.MemberName(at)}
		im, err := s.p.ImportName(joining, name.String())
		if err == nil {
			err = im.Close()
		}
		failed = err
	}()
	// The end of any child ends the wait for those before it.
	ended := make(chan int, len(s.ended))
	for i, e := range s.ended {
		go func() {
			select {
			case <-e:
				ended <- i
			case <-joining.Done():
			}
		}()
	}
	select {
	case <-over:
		if failed != nil && ctx.Err() != nil {
			return &Error{Class: ErrCanceled, Err: fmt.Errorf("program %d has not called Init: %w", rank, errors.Join(context.Cause(ctx), failed))}
		}
		return failed
	case i := <-ended:
		stop()
		<-over
		errs := make([]error, len(s.ended))
		errs[i] = s.errs[i]
		return &Error{Arg: "command", Class: ErrSpawn, Err: &SpawnError{errs}}
	}
}

// end ends a Spawn. If it has failed nothing is left of it.
func (s *spawning) end(failed bool) error {
	for rank, kill := range s.kill {
		if kill == nil {
			continue
		}
		if here := s.children.NodeOf(rank) == s.p.Node().String(); failed && here {
			kill()
			<-s.ended[rank]
		} else if !here {
			kill() // ends the wait for its end; it ends by the beacon, if it does not run without this job
		}
	}
	return errors.Join(s.beacon.Close(), s.mem.Close())
}

// checkCommands counts the programs.
func checkCommands(cmds []Command) (n int, err error) {
	bad := func(arg string, i int, format string, args ...any) (int, error) {
		return 0, &Error{Arg: arg, Class: ErrArg, Err: fmt.Errorf("command %d: %s", i, fmt.Sprintf(format, args...))}
	}
	for i, c := range cmds {
		switch {
		case c.Path == "":
			return bad("command", i, "the path is empty")
		case c.N < 1 || c.N > MaxSpawned-n:
			return bad("maxprocs", i, "%d programs, want 1 to %d of all commands", c.N, MaxSpawned)
		}
		if slices.ContainsFunc(c.Soft, func(n int) bool { return n < 1 || n > c.N }) {
			return bad("info", i, "soft is %v, want numbers from 1 to %d", c.Soft, c.N)
		}
		for _, v := range c.Env {
			if name, _, found := strings.Cut(v, "="); !found || name == "" || strings.Contains(v, "\x00") {
				return bad("info", i, "the variable %.40q is not of the form NAME=value", v)
			}
		}
		n += c.N
	}
	if n == 0 {
		return 0, &Error{Arg: "count", Class: ErrArg, Err: errors.New("there is no command")}
	}
	return n, nil
}

// newSpawning prepares a Spawn.
func (c *Comm) newSpawning(ctx context.Context, p *vmmc.Process, cmds []Command) (*spawning, error) {
	n, err := checkCommands(cmds)
	if err != nil {
		return nil, err
	}
	s := &spawning{p: p, first: len(c.ranks), both: c.nodesOf(p), errs: make([]error, n), kill: make([]func(), n)}
	s.children.ID, s.both.ID = newGroupID(), newGroupID()
	if module := c.j.home().module; module != "" { // both jobs have to agree
		s.module = []string{ModuleEnv + "=" + module}
	}
	for i := range cmds {
		if cmd := &cmds[i]; cmd.Dir == "" && strings.Contains(cmd.Path, "/") {
			if abs, err := filepath.Abs(cmd.Path); err == nil {
				cmd.Path = abs
			}
		}
		for k := range cmds[i].N {
			node := p.Node().String()
			if hosts := cmds[i].Hosts; len(hosts) > 0 {
				id, err := p.NameToNode(hosts[k%len(hosts)])
				if err != nil {
					return nil, &Error{Arg: "info", Class: ErrArg, Err: fmt.Errorf("command %d: host %.64q: %w", i, hosts[k%len(hosts)], err)}
				}
				node = id.String()
			}
			s.children.Append(node)
			s.both.Append(node)
			s.ended = append(s.ended, make(chan struct{}))
		}
	}
	if len(s.both.String()) > nodeproto.MaxGroup {
		return nil, fmt.Errorf("the ranks of both jobs take %d bytes to name, at most %d are possible", len(s.both.String()), nodeproto.MaxGroup)
	}
	if s.mem, err = p.Alloc(vmmc.PageSize()); err != nil {
		return nil, err
	}
	if s.beacon, err = p.Publish(ctx, beacon(s.children.ID), s.mem.Bytes()); err != nil {
		return nil, errors.Join(err, s.mem.Close())
	}
	return s, nil
}

// Spawn starts programs, which are the ranks of a job of their own, and makes an intercommunicator of
// the ranks of c and them (MPI_Comm_spawn, MPI_Comm_spawn_multiple, chapter Process Creation and
// Management). It is a collective of c. The commands matter at rank root only. The programs call
// Init, and get the intercommunicator by [Comm.Parent]. Spawn waits for that.
//
// Programs on root's node are its children: they print where it prints, and are in its process group.
// Those on other nodes are started by [vmmc.Process.Spawn]: they have their node's environment, and
// what they print goes nowhere. A command with Soft numbers starts fewer programs if not all can be
// started: all are ended then, and as many as could be are started anew. [Comm.RemoteSize] says how many
// there are. When one job ends without Finalize or [Comm.Disconnect] that is an
// error of the intercommunicator in the other one.
//
// Errors, at root: [ErrArg]; [ErrSpawn], with a [SpawnError]: a program cannot be started, or has
// ended before Init. The others are ended then. At the other ranks: [ErrOther].
//
// Experimental: it may change in any release.
func (c *Comm) Spawn(ctx context.Context, root int, cmds ...Command) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const op = "MPI_Comm_spawn"
	var s *spawning
	inter, err := c.meetAt(ctx, op, root, func(p *vmmc.Process) (string, int, error) {
		cmds := slices.Clone(cmds)
		for {
			var err error
			if s, err = c.newSpawning(ctx, p, cmds); err != nil {
				return "", 0, err
			}
			if err = s.start(ctx, cmds); err == nil || !fewer(cmds, err) {
				return s.both.String(), 0, err
			}
			if err := s.end(true); err != nil {
				s = nil
				return "", 0, err
			}
		}
	})
	if err == nil { // the children need the beacon until all have connected
		err = settle(ctx, inter)
	}
	if s != nil {
		err = errors.Join(err, wrap(op, s.end(err != nil)))
	}
	return inter, err
}

// fewer has the command of the first program that could not be started start as many as could before, if
// that is one of its soft numbers, or fewer. It reports whether there is such a number.
func fewer(cmds []Command, err error) bool {
	var failed *SpawnError
	if !errors.As(err, &failed) {
		return false
	}
	at := slices.IndexFunc(failed.Errs, func(err error) bool { return err != nil })
	for i := range cmds {
		c := &cmds[i]
		if at >= c.N {
			at -= c.N
			continue
		}
		n := 0
		for _, soft := range c.Soft {
			if soft <= at {
				n = max(n, soft)
			}
		}
		c.N = cmp.Or(n, c.N)
		c.Soft = slices.DeleteFunc(slices.Clone(c.Soft), func(soft int) bool { return soft > c.N })
		return n > 0
	}
	return false
}

// settle returns when all ranks of both jobs have connected. One that has ended since is an error of what
// they do next.
func settle(ctx context.Context, inter *Comm) error {
	if err := inter.Barrier(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// parentWatch watches the rank that has spawned this job, until both jobs have connected.
type parentWatch struct {
	text  string // the group of both jobs
	first int    // this job's first rank in it
	// connecting ends with the rank that spawns, or when it has given up: errParentGone is the cause.
	connecting context.Context //nolint:containedctx // see above
	stop       context.CancelCauseFunc
	beacon     *vmmc.Import
}

var errParentGone = errors.New("the rank that has spawned this program has ended, or has given up")

// watchParent begins to watch the rank that has spawned this job. It returns nil if there is none.
func (j *job) watchParent(ctx context.Context) (*parentWatch, error) {
	part := strings.SplitN(env.Get(nodeproto.ParentEnv), ";", 4)
	own, err := nodeproto.ParseGroup(env.Get(nodeproto.GroupEnv))
	if len(part) != 4 || err != nil || part[0] != own.ID {
		return nil, nil // another program was spawned, and has started this job
	}
	lifelines().endWithTool()
	first, err := strconv.Atoi(part[2])
	if err != nil {
		return nil, fmt.Errorf("%s is %.64q: %w", nodeproto.ParentEnv, env.Get(nodeproto.ParentEnv), err)
	}
	for info, err := range j.p.Names(ctx, part[1]+"/"+beacon(own.ID)) {
		if err != nil {
			return nil, err
		}
		// Not by its name: an import waits for a name that has just ended.
		bounded, stop := context.WithTimeout(ctx, lookupBound)
		defer stop()
		im, err := j.p.Import(bounded, info.Process.Node, info.Process.PID, info.Buffer)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errParentGone, err)
		}
		w := &parentWatch{text: part[3], first: first, beacon: im}
		w.connecting, w.stop = context.WithCancelCause(ctx)
		go func() { // ends with the watch
			select {
			case <-im.Done():
				w.stop(errParentGone)
			case <-w.connecting.Done():
			}
		}()
		return w, nil
	}
	return nil, errParentGone
}

// end ends the watch. It returns the error of what was done meanwhile, and says if the parent's end is
// the cause.
func (w *parentWatch) end(err error) error {
	if err != nil && errors.Is(context.Cause(w.connecting), errParentGone) {
		err = fmt.Errorf("%w: %w", errParentGone, err)
	}
	w.stop(nil)
	return errors.Join(err, w.beacon.Close())
}

// joinParent connects a job with the one that has spawned it.
func (j *job) joinParent(ctx context.Context, w *parentWatch) error {
	parent, err := j.world.bridge(w.connecting, "MPI_Init", w.text, w.first, "the parent")
	if err = w.end(err); err != nil {
		return err
	}
	j.parent = parent
	return settle(ctx, parent)
}

// Parent is the intercommunicator with the job that has spawned this one, and nil if none has,
// or after [Comm.Disconnect]
// (MPI_Comm_get_parent, chapter Process Creation and Management).
//
// Experimental: it may change in any release.
func (c *Comm) Parent() *Comm {
	if p := c.j.home().parent; p != nil && !p.freed.Load() {
		return p
	}
	return nil
}

// AppNum is the number of this program's command, from 0 on, in the Spawn or the "vmmc mpirun" that has
// started it, and Undefined otherwise (MPI_APPNUM).
//
// Experimental: it may change in any release.
func (c *Comm) AppNum() int {
	return numberOf(nodeproto.AppNumEnv)
}

// UniverseSize is how many ranks the nodes of the job have room for, those that it has included
// (MPI_UNIVERSE_SIZE): as many as "vmmc mpirun" was given slots, and Undefined if something else has
// started the job. A job may spawn more.
//
// Experimental: it may change in any release.
func (c *Comm) UniverseSize() int { return numberOf(nodeproto.UniverseEnv) }

// numberOf is the number that a variable of the environment has, or Undefined.
func numberOf(name string) int {
	n, err := strconv.Atoi(env.Get(name))
	if err != nil || n < 0 {
		return Undefined
	}
	return n
}

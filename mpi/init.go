package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/env"
	engine "github.com/vmmc-go/vmmc/internal/mpi"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/pmi"
)

// ModuleEnv is the environment variable that says which module all pairs of ranks use: "shm", "tcp"
// or "via". Two of them with a comma between, as "shm,via", are one for the ranks of a node and one for
// those of different nodes. Without it these are "shm,tcp".
//
// Experimental: it may change in any release.
const ModuleEnv = "VMMC_MPI_MODULE"

// Option changes what Init does.
//
// Experimental: it may change in any release.
type Option func(*options)

type options struct {
	module string
	p      *vmmc.Process
	g      *group.Group
	gone   func(rank int, err error)
}

// WithModule has all pairs of ranks use one module, or two, as [ModuleEnv] does, instead of what that says.
// All ranks give the same.
//
// Experimental: it may change in any release.
func WithModule(name string) Option { return func(o *options) { o.module = name } }

// WithGroup makes ranks of the members of a group that the program has joined by a process of its
// own. Finalize leaves both open. A rank that is gone does not end the program then.
//
// Experimental: it may change in any release.
func WithGroup(p *vmmc.Process, g *group.Group) Option {
	return func(o *options) { o.p, o.g = p, g }
}

// WithFailed has f called for each rank that is gone without Finalize, on a goroutine of its own,
// instead of the default: the program ends with status 1, so that the whole job ends
// (MPI_ERRORS_ARE_FATAL). Calls that need the rank fail with [ErrProcFailed] in any case.
//
// Experimental: it may change in any release.
func WithFailed(f func(rank int, err error)) Option { return func(o *options) { o.gone = f } }

// grace is how long calls that have failed have to end the program themselves: what it says then is
// better than what this package says.
const grace = 200 * time.Millisecond

// endProgram is what is done by default when a rank is gone.
func endProgram(_ int, err error) {
	time.Sleep(grace)
	fmt.Fprintf(os.Stderr, "mpi: this rank ends, as the job does: %v\n", err)
	os.Exit(1)
}

// job is what the communicators of a job have in common.
type job struct {
	e *engine.Engine
	p *vmmc.Process // Closed by Finalize; nil if the program's.
	g *group.Group
	// The communicators of this rank alone, and of all.
	self, world *Comm
	// unmapped reports whether windows are reached by connections, as module tcp is forced.
	unmapped bool
	// Of a job that hydra or Slurm has started; nil otherwise.
	launcher *pmi.Client
	// last is the agreement by which the ranks that live end together. Guarded by lastMu.
	lastMu sync.Mutex
	last   *agreement
	// over reports whether Finalize has ended the job.
	over atomic.Bool

	module string // that Init has got
	bridges
}

// Init begins MPI, and returns the communicator of all ranks (MPI_Init_thread with
// MPI_THREAD_MULTIPLE, MPI_COMM_WORLD). The ranks are the programs that "vmmc mpirun" or
// "vmmc run -n" has started, or hydra's mpiexec or Slurm's "srun --mpi=pmi2" on machines with a
// node. A program that was started otherwise is one rank, and needs no node. When a rank ends without
// Finalize all others end, see [WithFailed].
//
// It waits until all ranks have called it. If its context ends before, end the program.
//
// Errors: [ErrArg] for a module that is not there, or that does not reach a rank; [ErrOther] if the
// node cannot be joined, or if a launcher has started several ranks whose protocol is not PMI-1 or
// PMI-2.
//
// Experimental: it may change in any release.
func Init(ctx context.Context, opts ...Option) (*Comm, error) {
	const call = "MPI_Init"
	if ctx == nil {
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	}
	o := options{module: env.Get(ModuleEnv)}
	for _, opt := range opts {
		opt(&o)
	}
	lifelines() // what this program starts by itself must not have the pipes
	j := &job{module: o.module}
	several := env.Get(nodeproto.GroupEnv) != ""
	byPMI := false
	if o.g == nil && !several {
		var err error
		if byPMI, err = launched(); err != nil {
			return nil, fail(call, "", ErrOther, "%v", err)
		}
	}
	if o.g == nil && (several || byPMI) {
		if err := j.open(ctx, byPMI); err != nil {
			return nil, wrap(call, err)
		}
		o.p, o.g = j.p, j.g
		if o.gone == nil {
			o.gone = endProgram
		}
	}
	j.unmapped = o.module == "tcp"
	eo := engine.Options{Module: o.module}
	if o.gone != nil {
		eo.Gone = func(rank int, err error) { o.gone(rank, wrap("MPI job", err)) }
	}
	var parent *parentWatch
	var err error
	starting := ctx
	if j.p != nil { // without its parent the job may never be complete
		if parent, err = j.watchParent(ctx); err != nil {
			return nil, fail(call, "", ErrOther, "%w", errors.Join(err, j.p.Close()))
		}
		if parent != nil {
			starting = parent.connecting
		}
	}
	if j.e, err = engine.Start(starting, o.p, o.g, eo); err != nil {
		if parent != nil {
			err = parent.end(err)
		}
		if j.p != nil {
			err = errors.Join(err, j.p.Close())
		}
		return nil, wrap(call, err)
	}
	ranks := make([]int, j.e.Size())
	for i := range ranks {
		ranks[i] = i
	}
	j.self = newComm(j, j.e.NewContext(), 0, []int{j.e.Rank()}, "MPI_COMM_SELF")
	j.world = newComm(j, 0, j.e.Rank(), ranks, "MPI_COMM_WORLD")
	if parent != nil {
		if err := j.joinParent(ctx, parent); err != nil {
			return nil, wrap(call, errors.Join(err, j.abandon(), j.p.Close()))
		}
	}
	return j.world, nil
}

// endContext is the context of the agreement by which ranks end together. No communicator has it.
const endContext = 1 << 62

// endTogether returns when all ranks that live have called it.
func (j *job) endTogether(ctx context.Context) error {
	j.lastMu.Lock()
	defer j.lastMu.Unlock()
	if j.last == nil {
		all := newComm(j, endContext, j.e.Rank(), ranksTo(j.e.Size()), "the job")
		j.last = all.newAgreement("MPI_Finalize", 0)
	}
	return j.last.run(ctx)
}

// Finalize ends MPI (MPI_Finalize). It waits until all ranks have called it, and so have those of
// other jobs that are connected with this one: see [Comm.Disconnect]. Before, all messages
// must be received, and all requests waited for. After an error of the context call it again.
//
// Experimental: it may change in any release.
func (c *Comm) Finalize(ctx context.Context) error {
	const call = "MPI_Finalize"
	if ctx == nil {
		return fail(call, "ctx", ErrArg, "the context is nil")
	}
	attributes := errors.Join(c.j.self.removeAttributes(), c.j.world.removeAttributes())
	err := c.j.home().finalize(ctx)
	if attributes != nil {
		return &Error{Call: call, Class: ErrOther, Err: errors.Join(wrap(call, err), attributes)}
	}
	return wrap(call, err)
}

func (j *job) finalize(ctx context.Context) error {
	if err := j.endBridges(ctx); err != nil {
		return err
	}
	err := j.e.Finish(ctx, j.endTogether)
	if err != nil && ctx.Err() != nil {
		return err
	}
	if j.p != nil && j.over.CompareAndSwap(false, true) {
		err = errors.Join(err, j.g.Leave(ctx), j.p.Close())
		if j.launcher != nil {
			err = errors.Join(err, j.launcher.Close(ctx))
		}
	}
	return errors.Join(err, j.leaveNode())
}

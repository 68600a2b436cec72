package mpiabi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/mpi"
)

// Config is what the program that has the package gives it.
type Config struct {
	// Callback runs a function of the C program, and returns what it has returned. nil: there are none.
	Callback func(function uint64, args ...uint64) uint64
	// Init begins MPI. nil: [mpi.Init] for the job that the program is part of.
	Init func(ctx context.Context, failed func(rank int, err error)) (*mpi.Comm, error)
	// Exit ends the program, and so the job, with a status. nil: [os.Exit].
	Exit func(status int)
	// Stderr gets the line that says why a job ends. nil: [os.Stderr].
	Stderr io.Writer
}

// Env executes the calls of one program.
type Env struct {
	config      Config
	handles     handleTable
	codes       errorCodes
	errhandlers errhandlers
	buffer      sendBuffer
	fortran     fortran
	f90Types    f90Types
	// ctx is the context of what goes on after its call. It ends with Abort or Finalize.
	ctx  context.Context //nolint:containedctx // C calls have none, and this one ends with the job.
	stop context.CancelFunc

	initMu sync.Mutex // Held by Init and Finalize.
	// job reports whether the job has begun, and not ended. Guarded by initMu.
	job      bool
	sessions atomic.Int32 // that are open
	phase    atomic.Int32
	ended    sync.Once // abort
	world    comm
	self     comm
	noFile   noFile

	parentMu   sync.Mutex
	parentComm Handle // Guarded by parentMu. 0: the program has not asked for it.

	signals *mpi.Comm     // of this rank alone, for ends of nonblocking collectives
	signal  atomic.Uint32 // the last one's tag

	commAttributes  *commAttributes
	typesAttributes sync.Map // of datatypes: *attributes by Handle
	allocated       sync.Map // by MPI_Alloc_mem: *shm.Region by its address
}

// The phases of a program.
const (
	phaseBefore    = iota // before MPI_Init
	phaseRunning          // between MPI_Init and MPI_Finalize
	phaseFinalized        // after MPI_Finalize
)

// New makes the environment of a program. Call its calls by [Env.Call].
func New(config Config) *Env {
	if config.Init == nil {
		config.Init = func(ctx context.Context, failed func(int, error)) (*mpi.Comm, error) {
			return mpi.Init(ctx, mpi.WithFailed(failed))
		}
	}
	if config.Exit == nil {
		config.Exit = os.Exit
	}
	if config.Stderr == nil {
		config.Stderr = os.Stderr
	}
	e := &Env{config: config, commAttributes: newCommAttributes()}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.world.init(commWorld, nil)
	e.self.init(commSelf, nil)
	e.noFile.handler.Store(uint64(errorsReturn))
	return e
}

// Phase is 0 before MPI_Init, 2 after MPI_Finalize, and 1 between them. The C libraries answer
// MPI_Initialized and MPI_Finalized by it.
func (e *Env) Phase() int { return int(e.phase.Load()) }

// Context is the context that those of calls are derived from. It ends with the job, or with MPI_Finalize.
func (e *Env) Context() context.Context { return e.ctx }

// abort ends the job. It says why first. Calls of other threads that fail meanwhile, as the job ends,
// say nothing.
func (e *Env) abort(status int, why string) {
	e.ended.Do(func() {
		fmt.Fprintf(e.config.Stderr, "mpi: %s\n", why)
		e.stop()
		if status &= 0xff; status == 0 {
			status = 1 // The launcher takes 0 for success.
		}
		e.config.Exit(status)
	})
}

// failedGrace is how long calls that need a failed rank have to end the job themselves: they say which
// call has failed.
const failedGrace = 200 * time.Millisecond

// rankFailed ends the job when a rank is gone, unless the program handles errors itself.
func (e *Env) rankFailed(rank int, err error) {
	if !fatal(Handle(e.world.handler.Load())) || e.phase.Load() != phaseRunning && e.sessions.Load() > 0 {
		return
	}
	time.Sleep(failedGrace)
	e.abort(1, fmt.Sprintf("rank %d is gone, and errors of MPI_COMM_WORLD are fatal, so the job ends: %v", rank, err))
}

// begin is MPI_Init.
func (e *Env) begin() error {
	e.initMu.Lock()
	defer e.initMu.Unlock()
	switch e.phase.Load() {
	case phaseRunning:
		return fail("", errOther, "MPI is initialized already: call MPI_Init once")
	case phaseFinalized:
		return fail("", errOther, "MPI is finalized: it cannot begin again")
	}
	if err := e.beginJob(); err != nil {
		return err
	}
	e.phase.Store(phaseRunning)
	return nil
}

// beginJob begins the job, unless it has begun. The caller holds initMu.
func (e *Env) beginJob() error {
	switch {
	case e.job:
		return nil
	case e.ctx.Err() != nil:
		return fail("", errOther, "the job of this program has ended: it cannot begin again")
	}
	c, err := e.config.Init(e.ctx, e.rankFailed)
	if err != nil {
		return err
	}
	e.world.c, e.self.c = c, c.Self()
	e.world.hidden, e.self.hidden = c.Shadow(), c.Self().Shadow()
	if e.signals, err = c.Self().Dup(e.ctx); err != nil {
		return err
	}
	e.commAttributes.appnum = int32(c.AppNum())
	e.job = true
	return nil
}

// end is MPI_Finalize.
func (e *Env) end() error {
	e.initMu.Lock()
	defer e.initMu.Unlock()
	if e.phase.Load() != phaseRunning {
		return errNotRunning(e.phase.Load())
	}
	// Delete functions may call MPI still. Libraries have their work ended by those of MPI_COMM_SELF.
	for _, c := range []*comm{&e.self, &e.world} {
		if err := c.attributes.removeAll(e, c.h); err != nil {
			return err
		}
	}
	if e.sessions.Load() == 0 {
		if err := e.endJob(); err != nil {
			return err
		}
	}
	e.phase.Store(phaseFinalized)
	return nil
}

// endJob ends the job when all its ranks do. The caller holds initMu.
func (e *Env) endJob() error {
	if err := e.world.c.Finalize(e.ctx); err != nil {
		return err
	}
	e.job = false
	e.stop()
	return nil
}

// Exit ends a job that sessions have begun, when the program ends. If a session is open, or MPI_Finalize is due,
// the program has failed, and other ranks learn so.
func (e *Env) Exit() error {
	e.initMu.Lock()
	defer e.initMu.Unlock()
	if !e.job || e.sessions.Load() > 0 || e.phase.Load() == phaseRunning {
		return nil
	}
	return e.endJob()
}

// usable reports whether calls are legal that are not so before MPI_Init and after MPI_Finalize.
func (e *Env) usable() bool { return e.phase.Load() == phaseRunning || e.sessions.Load() > 0 }

func errNotRunning(phase int32) error {
	if phase == phaseFinalized {
		return fail("", errOther, "MPI is finalized: call it before MPI_Finalize")
	}
	return fail("", errOther, "MPI is not initialized: call MPI_Init before")
}

// errNoCallback is the error of a program's function that nothing can run.
var errNoCallback = errors.New("this environment runs no functions of the program")

package mpi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/pmi"
)

// Variables of launchers that speak PMI.
const (
	pmiFD   = "PMI_FD"
	pmiRank = "PMI_RANK"
	pmiSize = "PMI_SIZE"
)

// otherLaunchers are variables by which other launchers tell the number of ranks.
var otherLaunchers = []string{pmiSize, "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS"}

// launched reports whether a launcher that speaks PMI has started several ranks. It fails if a
// launcher has that does not.
func launched() (bool, error) {
	if env.Get(nodeproto.SizeEnv) == "1" { // vmmc mpirun has started one rank, perhaps below a launcher
		return false, nil
	}
	if n, err := strconv.Atoi(env.Get(pmiSize)); err == nil && n > 1 && env.Get(pmiFD) != "" {
		return true, nil
	}
	for _, name := range otherLaunchers {
		if n, err := strconv.Atoi(env.Get(name)); err == nil && n > 1 {
			return false, fmt.Errorf("%s is %d: a launcher has started the program that does not speak PMI-1 or PMI-2 with it: start it by vmmc mpirun -n %d, by hydra's mpiexec, or by srun --mpi=pmi2", name, n, n)
		}
	}
	return false, nil
}

// joinByPMI makes a group of the ranks that a launcher has started, as vmmc mpirun makes one.
func (j *job) joinByPMI(ctx context.Context) (err error) {
	fd, err1 := strconv.Atoi(env.Get(pmiFD))
	rank, err2 := strconv.Atoi(env.Get(pmiRank))
	size, err3 := strconv.Atoi(env.Get(pmiSize))
	if err := errors.Join(err1, err2, err3); err != nil || fd < 0 || rank < 0 || rank >= size {
		return fmt.Errorf("the launcher's %s=%q, %s=%q and %s=%q do not go together", pmiFD, env.Get(pmiFD), pmiRank, env.Get(pmiRank), pmiSize, env.Get(pmiSize))
	}
	f, err := pmi.Open(fd, pmiFD)
	if err != nil {
		return fmt.Errorf("%s=%d: %w", pmiFD, fd, err)
	}
	given := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Now()) })
	defer given()
	defer func() {
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		_ = f.Close() // the launcher ends the job when this rank ends
	}()
	if j.launcher, err = pmi.New(f, rank); err != nil {
		return err
	}
	if err := j.launcher.Put(nodeKey(rank), j.p.Node().String()); err != nil {
		return err
	}
	if rank == 0 {
		id := make([]byte, 16)
		_, _ = rand.Read(id) // never fails
		if err := j.launcher.Put("vmmc-group", hex.EncodeToString(id)); err != nil {
			return err
		}
	}
	if err := j.launcher.Fence(); err != nil {
		return err
	}
	var g nodeproto.Group
	if g.ID, err = j.launcher.Get("vmmc-group"); err != nil {
		return err
	}
	for other := range size {
		node, err := j.launcher.Get(nodeKey(other))
		if err != nil {
			return fmt.Errorf("the node of rank %d: %w", other, err)
		}
		g.Append(node)
	}
	// what this program starts finds the group as below vmmc mpirun
	for name, value := range map[string]string{
		nodeproto.GroupEnv: g.String(), nodeproto.RankEnv: strconv.Itoa(rank), nodeproto.SizeEnv: strconv.Itoa(size),
	} {
		if err := env.Take(name, value); err != nil {
			return err
		}
	}
	j.g, err = group.Join(ctx, j.p)
	return err
}

// nodeKey is the key of a rank's node in the launcher's key-value space.
func nodeKey(rank int) string { return fmt.Sprint("vmmc-node-", rank) }

// open joins this machine's node, and the group of all ranks.
func (j *job) open(ctx context.Context, byPMI bool) (err error) {
	if j.p, err = vmmc.Open(ctx); err != nil {
		return err
	}
	if byPMI {
		err = j.joinByPMI(ctx)
	} else {
		j.g, err = group.Join(ctx, j.p)
	}
	if err != nil {
		err = errors.Join(err, j.p.Close())
	}
	return err
}

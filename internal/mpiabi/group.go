package mpiabi

import "github.com/vmmc-go/vmmc/mpi"

// Chapter "Groups, Contexts, Communicators, and Caching": groups.

func init() {
	register("MPI_Comm_group", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		return e.addGroup(a, 1, c.c.Group())
	})
	register("MPI_Group_size", func(e *Env, a *arguments) error {
		g, err := e.group(a, 0)
		if err != nil {
			return err
		}
		return a.setInt(1, g.Size())
	})
	register("MPI_Group_rank", func(e *Env, a *arguments) error {
		g, err := e.group(a, 0)
		if err != nil {
			return err
		}
		return a.setInt(1, g.Rank())
	})
	register("MPI_Group_incl", func(e *Env, a *arguments) error { return e.selectRanks(a, mpi.Group.Incl) })
	register("MPI_Group_excl", func(e *Env, a *arguments) error { return e.selectRanks(a, mpi.Group.Excl) })
	register("MPI_Group_union", func(e *Env, a *arguments) error { return e.combine(a, mpi.Group.Union) })
	register("MPI_Group_intersection", func(e *Env, a *arguments) error {
		return e.combine(a, func(g, h mpi.Group) (mpi.Group, error) { return g.Intersection(h), nil })
	})
	register("MPI_Group_difference", func(e *Env, a *arguments) error {
		return e.combine(a, func(g, h mpi.Group) (mpi.Group, error) { return g.Difference(h), nil })
	})
	register("MPI_Group_free", freeGroup)
}

// group is the group that an argument is the handle of.
func (e *Env) group(a *arguments, i int) (mpi.Group, error) {
	h := a.Handle(i)
	switch h {
	case groupNull:
		return mpi.Group{}, fail(a.name(i), errGroup, "it is MPI_GROUP_NULL")
	case groupEmpty:
		return mpi.Group{}, nil
	}
	if g, ok := lookup[*mpi.Group](&e.handles, h); ok {
		return *g, nil
	}
	return mpi.Group{}, fail(a.name(i), errGroup, "%#x is no group, or one that is freed", uint64(h))
}

// addGroup stores the handle of a new group. One without members is MPI_GROUP_EMPTY.
func (e *Env) addGroup(a *arguments, i int, g mpi.Group) error {
	if g.Size() == 0 {
		return a.setHandle(i, groupEmpty)
	}
	h := e.handles.add(&g)
	err := a.setHandle(i, h)
	if err != nil {
		remove[*mpi.Group](&e.handles, h)
	}
	return err
}

// selectRanks makes a group by a list of ranks of another one.
func (e *Env) selectRanks(a *arguments, f func(g mpi.Group, ranks []int) (mpi.Group, error)) error {
	g, err := e.group(a, 0)
	if err != nil {
		return err
	}
	n := a.Int(1)
	if n < 0 || n > g.Size() {
		return fail(a.name(1), errArg, "it is %d, want 0 to the group's %d members", n, g.Size())
	}
	ranks, err := a.ints(2, n)
	if err != nil {
		return err
	}
	out, err := f(g, ranks)
	if err != nil {
		return err
	}
	return e.addGroup(a, 3, out)
}

// combine makes a group of two others.
func (e *Env) combine(a *arguments, f func(g, h mpi.Group) (mpi.Group, error)) error {
	g, err := e.group(a, 0)
	if err != nil {
		return err
	}
	h, err := e.group(a, 1)
	if err != nil {
		return err
	}
	out, err := f(g, h)
	if err != nil {
		return err
	}
	return e.addGroup(a, 2, out)
}

// freeGroup frees a group, and stores MPI_GROUP_NULL in its handle. MPI_GROUP_EMPTY may be freed too,
// as calls return it.
func freeGroup(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	if h != groupEmpty {
		if _, ok := remove[*mpi.Group](&e.handles, h); !ok {
			return fail(a.name(0), errGroup, "%#x is no group, or one that is freed", uint64(h))
		}
	}
	return a.setHandle(0, groupNull)
}

package mpiabi

import "github.com/vmmc-go/vmmc/mpi"

// Chapter "Groups, Contexts, Communicators, and Caching": names, comparisons, and further constructors.

// Results of comparisons, types of MPI_Comm_split_type, and the longest name of an object.
const (
	ident     = 201
	congruent = 202
	similar   = 203
	unequal   = 204

	commTypeShared    = 221
	commTypeHWUnguid  = 222
	commTypeHWGuided  = 223
	commTypeResources = 224

	maxObjectName = 128 // with the NUL
)

func init() {
	register("MPI_Comm_set_name", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		name, err := a.cString(1, maxObjectName-1)
		if err != nil {
			return err
		}
		c.name.Store(&name)
		if name != "" { // Errors name the communicator.
			c.c.SetName(name)
		}
		return nil
	})
	register("MPI_Comm_get_name", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		return a.setName(1, 2, c.objectName())
	})
	register("MPI_Comm_compare", compareComms)
	register("MPI_Comm_test_inter", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		return a.setFlag(1, c.c.Inter())
	})
	register("MPI_Comm_remote_size", func(e *Env, a *arguments) error {
		c, err := e.intercomm(a, 0)
		if err != nil {
			return err
		}
		return a.setInt(1, c.c.RemoteSize())
	})
	register("MPI_Comm_remote_group", func(e *Env, a *arguments) error {
		c, err := e.intercomm(a, 0)
		if err != nil {
			return err
		}
		return e.addGroup(a, 1, c.c.RemoteGroup())
	})
	register("MPI_Comm_create", func(e *Env, a *arguments) error {
		g, err := e.group(a, 1)
		if err != nil {
			return err
		}
		return e.newComm(a, 2, func(c *comm) (*mpi.Comm, error) { return c.c.Create(a.ctx, g) })
	})
	register("MPI_Comm_create_group", func(e *Env, a *arguments) error {
		g, err := e.group(a, 1)
		if err != nil {
			return err
		}
		return e.newComm(a, 3, func(c *comm) (*mpi.Comm, error) { return c.c.CreateGroup(a.ctx, g, a.Int(2)) })
	})
	register("MPI_Comm_split_type", splitType)
	register("MPI_Intercomm_create", func(e *Env, a *arguments) error {
		return e.newComm(a, 5, func(c *comm) (*mpi.Comm, error) {
			var peer *mpi.Comm // It matters at the leader only.
			if a.Int(1) == c.c.Rank() {
				p, err := e.comm(a, 2)
				if err != nil {
					return nil, err
				}
				peer = p.c
			}
			return c.c.Intercomm(a.ctx, a.Int(1), peer, a.Int(3), a.Int(4))
		})
	})
	register("MPI_Intercomm_merge", func(e *Env, a *arguments) error {
		if _, err := e.intercomm(a, 0); err != nil {
			return err
		}
		return e.newComm(a, 2, func(c *comm) (*mpi.Comm, error) { return c.c.Merge(a.ctx, a.Int(1) != 0) })
	})

	register("MPI_Group_compare", func(e *Env, a *arguments) error {
		g, err := e.group(a, 0)
		if err != nil {
			return err
		}
		h, err := e.group(a, 1)
		if err != nil {
			return err
		}
		return a.setInt(2, comparisonOf(g.Compare(h)))
	})
	register("MPI_Group_translate_ranks", translateRanks)
	register("MPI_Group_range_incl", func(e *Env, a *arguments) error { return e.selectRanges(a, mpi.Group.RangeIncl) })
	register("MPI_Group_range_excl", func(e *Env, a *arguments) error { return e.selectRanges(a, mpi.Group.RangeExcl) })
}

// setName stores the name of an object, with a NUL, and its length. The program has room for maxObjectName bytes.
func (a *arguments) setName(i, length int, name string) error {
	if a.Addr(i) == 0 {
		return fail(a.name(i), errArg, "it is NULL, want where to store the name")
	}
	name = name[:min(len(name), maxObjectName-1)]
	if err := a.setInt(length, len(name)); err != nil {
		return err
	}
	return a.access(i, func() {
		to := slice[byte](a.Addr(i), len(name)+1)
		copy(to, name)
		to[len(name)] = 0
	})
}

// objectName is the name that the program knows. A communicator that it has made has none at first.
func (c *comm) objectName() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	switch c.h {
	case commWorld:
		return "MPI_COMM_WORLD"
	case commSelf:
		return "MPI_COMM_SELF"
	}
	return ""
}

// intercomm is the intercommunicator that an argument is the handle of.
func (e *Env) intercomm(a *arguments, i int) (*comm, error) {
	c, err := e.comm(a, i)
	if err != nil {
		return nil, err
	}
	if !c.c.Inter() {
		return nil, fail(a.name(i), errComm, "%s is no intercommunicator", c.c.Name())
	}
	return c, nil
}

// comparisonOf is the ABI's value of a comparison.
func comparisonOf(c mpi.Comparison) int {
	switch c {
	case mpi.Ident:
		return ident
	case mpi.Similar:
		return similar
	}
	return unequal
}

func compareComms(e *Env, a *arguments) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	d, err := e.comm(a, 1)
	if err != nil {
		return err
	}
	result := unequal
	switch {
	case c == d:
		result = ident
	case c.c.Inter() == d.c.Inter():
		// The groups of two intercommunicators are compared each with its own kind.
		result = max(comparisonOf(c.c.Group().Compare(d.c.Group())), comparisonOf(c.c.RemoteGroup().Compare(d.c.RemoteGroup())))
		if result == ident {
			result = congruent
		}
	}
	return a.setInt(2, result)
}

// splitType makes a communicator of the ranks that share memory. No rank guides by hardware or
// resources here, so those types give MPI_COMM_NULL.
func splitType(e *Env, a *arguments) error {
	typ := a.Int(1)
	switch typ {
	case undefined, commTypeShared, commTypeHWUnguid, commTypeHWGuided, commTypeResources:
	default:
		return fail(a.name(1), errArg, "it is %d, want MPI_COMM_TYPE_SHARED, another of these types, or MPI_UNDEFINED", typ)
	}
	return e.newComm(a, 4, func(c *comm) (*mpi.Comm, error) {
		color := undefined
		if typ == commTypeShared {
			for color = range c.c.Size() { // The first rank that this one reaches by memory.
				module, err := c.c.Module(color)
				if err != nil {
					return nil, err
				}
				if module == "shm" || color == c.c.Rank() {
					break
				}
			}
		}
		return c.c.Split(a.ctx, color, a.Int(2))
	})
}

func translateRanks(e *Env, a *arguments) error {
	g, err := e.group(a, 0)
	if err != nil {
		return err
	}
	n, err := a.count(1)
	if err != nil {
		return err
	}
	h, err := e.group(a, 3)
	if err != nil {
		return err
	}
	from, err := a.ints(2, n)
	if err != nil {
		return err
	}
	to, err := g.Translate(from, h)
	if err != nil {
		return err
	}
	return a.storeInts(4, to)
}

// selectRanges makes a group by ranges of ranks of another one.
func (e *Env) selectRanges(a *arguments, f func(g mpi.Group, ranges []mpi.Range) (mpi.Group, error)) error {
	g, err := e.group(a, 0)
	if err != nil {
		return err
	}
	n, err := a.count(1)
	if err != nil {
		return err
	}
	if n > g.Size() {
		return fail(a.name(1), errArg, "%d ranges are more than the group's %d members", n, g.Size())
	}
	list, err := a.ints(2, 3*n)
	if err != nil {
		return err
	}
	ranges := make([]mpi.Range, n)
	for i := range ranges {
		ranges[i] = mpi.Range{First: list[3*i], Last: list[3*i+1], Stride: list[3*i+2]}
	}
	out, err := f(g, ranges)
	if err != nil {
		return err
	}
	return e.addGroup(a, 3, out)
}

package mpiabi

import "strings"

// Chapter "Datatypes": what a datatype is, its name, and its end.

func init() {
	register("MPI_Type_commit", commitType)
	register("MPI_Type_free", freeType)
	size := func(e *Env, a *arguments) error {
		t, err := e.datatype(a, 0)
		if err != nil {
			return err
		}
		return a.setInt(1, t.size)
	}
	register("MPI_Type_size", size)
	register("MPI_Type_size_x", size)
	extent := twoSizes(func(t *datatype) (int, int) { return t.lb, t.extent })
	register("MPI_Type_get_extent", extent)
	register("MPI_Type_get_extent_x", extent)
	trueExtent := twoSizes(func(t *datatype) (int, int) { return t.trueLB, t.trueExtent })
	register("MPI_Type_get_true_extent", trueExtent)
	register("MPI_Type_get_true_extent_x", trueExtent)
	register("MPI_Type_extent", oneSize(func(t *datatype) int { return t.extent }))
	register("MPI_Type_lb", oneSize(func(t *datatype) int { return t.lb }))
	register("MPI_Type_ub", oneSize(func(t *datatype) int { return t.lb + t.extent }))
	register("MPI_Type_get_envelope", envelope)
	register("MPI_Type_get_contents", typeContents)
	register("MPI_Type_set_name", setTypeName)
	register("MPI_Type_get_name", typeName)
}

// twoSizes is a call that stores two sizes.
func twoSizes(f func(t *datatype) (int, int)) call {
	return func(e *Env, a *arguments) error {
		t, err := e.datatype(a, 0)
		if err != nil {
			return err
		}
		lb, extent := f(t)
		if err := a.setInt(1, lb); err != nil {
			return err
		}
		return a.setInt(2, extent)
	}
}

// oneSize is a call that stores one size.
func oneSize(f func(t *datatype) int) call {
	return func(e *Env, a *arguments) error {
		t, err := e.datatype(a, 0)
		if err != nil {
			return err
		}
		return a.setInt(1, f(t))
	}
}

func commitType(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	t, err := e.datatypeOf(a.name(0), h)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.committed = true
	return nil
}

// freeType frees a handle. Datatypes that were made of this one, and calls that use it, keep it.
func freeType(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	if t, ok := named[h]; ok {
		return fail(a.name(0), errType, "it is %s, which is not freed", t.name)
	}
	t, ok := lookup[*datatype](&e.handles, h)
	switch {
	case !ok:
		return fail(a.name(0), errType, "%#x is no datatype, or one that is freed", uint64(h))
	case t.fixed:
		return fail(a.name(0), errType, "it is a number of Fortran, which is not freed")
	}
	if err := e.removeTypeAttributes(h); err != nil {
		return err
	}
	remove[*datatype](&e.handles, h)
	return a.setHandle(0, datatypeNull)
}

// envelope stores how many arguments of each kind the constructor had. The form with large counts tells
// of one kind more.
func envelope(e *Env, a *arguments) error {
	t, err := e.datatype(a, 0)
	if err != nil {
		return err
	}
	large := strings.HasSuffix(a.p.name, "_c")
	m := t.made
	if m == nil {
		m = &contents{combiner: combinerNamed}
	}
	results := []int{len(m.ints), len(m.addrs), len(m.types), m.combiner}
	switch {
	case large:
		results = []int{len(m.ints), len(m.addrs), len(m.counts), len(m.types), m.combiner}
	case len(m.counts) > 0:
		return fail(a.name(0), errType, "it was made with large counts: call MPI_Type_get_envelope_c")
	}
	for i, v := range results {
		if err := a.setInt(1+i, v); err != nil {
			return err
		}
	}
	return nil
}

// typeContents stores the arguments of the constructor. Datatypes that the standard has not named get new
// handles, which the program frees.
func typeContents(e *Env, a *arguments) error {
	t, err := e.datatype(a, 0)
	if err != nil {
		return err
	}
	m := t.made
	if m == nil {
		return fail(a.name(0), errType, "it is %s, which no call has made", t.name)
	}
	lists := [][]int{m.ints, m.addrs}
	if strings.HasSuffix(a.p.name, "_c") {
		lists = append(lists, m.counts)
	} else if len(m.counts) > 0 {
		return fail(a.name(0), errType, "it was made with large counts: call MPI_Type_get_contents_c")
	}
	room := 1 + len(lists) // the argument that says how many datatypes there is room for
	for i, list := range lists {
		if a.Count(1+i) < len(list) {
			return fail(a.name(1+i), errArg, "it is %d, and there are %d: call MPI_Type_get_envelope before", a.Count(1+i), len(list))
		}
	}
	if a.Count(room) < len(m.types) {
		return fail(a.name(room), errArg, "it is %d, and there are %d: call MPI_Type_get_envelope before", a.Count(room), len(m.types))
	}
	for i, list := range lists {
		if err := a.storeInts(room+1+i, list); err != nil {
			return err
		}
	}
	handles := make([]Handle, len(m.types))
	for i, h := range m.handles {
		if handles[i] = h; named[h] == nil && !m.types[i].fixed {
			handles[i] = e.handles.add(m.types[i])
		}
	}
	if err := a.setHandles(room+1+len(lists), handles); err != nil {
		for _, h := range handles {
			remove[*datatype](&e.handles, h)
		}
		return err
	}
	return nil
}

// maxTypeName is the room for a name of a datatype, with the 0 byte behind it.
const maxTypeName = 128

func setTypeName(e *Env, a *arguments) error {
	t, err := e.datatype(a, 0)
	if err != nil {
		return err
	}
	name, err := a.cString(1, maxTypeName-1)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.label = name
	return nil
}

func typeName(e *Env, a *arguments) error {
	t, err := e.datatype(a, 0)
	if err != nil {
		return err
	}
	t.mu.Lock()
	name := t.label
	t.mu.Unlock()
	if err := a.setCString(1, name); err != nil {
		return err
	}
	return a.setInt(2, len(name))
}

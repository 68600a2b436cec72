package mpiabi

import "math"

// Chapter "Point-to-Point Communication": what a status says.

func init() {
	register("MPI_Get_count", func(e *Env, a *arguments) error {
		return e.countIn(a, func(d *datatype, bytes int) (int, error) {
			switch {
			case bytes == 0:
				return 0, nil
			case d.size == 0 || bytes%d.size != 0:
				return undefined, nil
			}
			return bytes / d.size, nil
		})
	})
	elements := func(e *Env, a *arguments) error {
		return e.countIn(a, func(d *datatype, bytes int) (int, error) {
			if n, ok := countElements(d, bytes); ok {
				return n, nil
			}
			return undefined, nil
		})
	}
	register("MPI_Get_elements", elements)
	register("MPI_Get_elements_x", elements)
	register("MPI_Status_set_elements", setElements)
	register("MPI_Status_set_elements_x", setElements)
	register("MPI_Test_cancelled", func(_ *Env, a *arguments) error {
		return a.statusOf(0, func(s []int32) error { return a.setFlag(1, s[statusCancelled] != 0) })
	})
	register("MPI_Status_set_cancelled", func(_ *Env, a *arguments) error {
		v := int32(0)
		if a.Int(1) != 0 {
			v = 1
		}
		return a.storeStatus(0, func(s []int32) { s[statusCancelled] = v })
	})
	for field, calls := range map[int][2]string{
		statusSource: {"MPI_Status_get_source", "MPI_Status_set_source"},
		statusTag:    {"MPI_Status_get_tag", "MPI_Status_set_tag"},
		statusError:  {"MPI_Status_get_error", "MPI_Status_set_error"},
	} {
		registerAlways(calls[0], func(_ *Env, a *arguments) error {
			return a.statusOf(0, func(s []int32) error { return a.setInt(1, int(s[field])) })
		})
		registerAlways(calls[1], func(_ *Env, a *arguments) error {
			v := int32(a.Int(1))
			return a.storeStatus(0, func(s []int32) { s[field] = v })
		})
	}
}

// statusOf gives f a copy of a status.
func (a *arguments) statusOf(i int, f func(s []int32) error) error {
	copied := make([]int32, statusSize/4)
	if err := a.storeStatus(i, func(s []int32) { copy(copied, s) }); err != nil {
		return err
	}
	return f(copied)
}

// storeStatus gives f a status of the program to change.
func (a *arguments) storeStatus(i int, f func(s []int32)) error {
	addr := a.Addr(i)
	if addr == 0 {
		return fail(a.name(i), errArg, "it is MPI_STATUS_IGNORE, want a status")
	}
	return a.access(i, func() { f(slice[int32](addr, statusSize/4)) })
}

// countIn stores in argument 2 what f counts in the bytes of status 0, in items of datatype 1.
func (e *Env) countIn(a *arguments, f func(d *datatype, bytes int) (int, error)) error {
	d, err := e.datatype(a, 1)
	if err != nil {
		return err
	}
	return a.statusOf(0, func(s []int32) error {
		n, err := f(d, int(int64(uint64(uint32(s[statusBytesLow]))|uint64(uint32(s[statusBytesHigh]))<<32)))
		if err != nil {
			return err
		}
		return a.setInt(2, n)
	})
}

// component is n items of a datatype, or n basic elements of a size if it is nil.
type component struct {
	n    int
	d    *datatype
	size int
}

// components are what an item of a datatype consists of, in the order of its values.
func (d *datatype) components() []component {
	switch d.name {
	case "MPI_FLOAT_INT", "MPI_DOUBLE_INT", "MPI_LONG_INT", "MPI_SHORT_INT", "MPI_LONG_DOUBLE_INT":
		return []component{{n: 1, size: d.size - 4}, {n: 1, size: 4}}
	case "MPI_2INT", "MPI_2REAL", "MPI_2INTEGER", "MPI_2DOUBLE_PRECISION":
		return []component{{n: 2, size: d.size / 2}}
	}
	m := d.made
	switch {
	case m == nil || len(m.types) == 0:
		return []component{{n: 1, size: d.size}}
	case m.combiner == combinerStruct:
		lengths := m.ints
		if m.large {
			lengths = m.counts
		}
		list := make([]component, len(m.types))
		for i, t := range m.types {
			list[i] = component{lengths[i+1], t, t.size}
		}
		return list
	}
	t := m.types[0]
	if t.size == 0 {
		return nil
	}
	return []component{{d.size / t.size, t, t.size}}
}

// basic is how many basic elements an item of the component has.
func (p component) basic() int {
	if p.d == nil {
		return 1
	}
	return p.d.basicElements()
}

// basicElements is how many basic elements an item has.
func (d *datatype) basicElements() int {
	n := 0
	for _, p := range d.components() {
		n += p.n * p.basic()
	}
	return n
}

// countElements is how many basic elements a number of bytes of a datatype are. ok is false if they
// are no whole number of them.
func countElements(d *datatype, bytes int) (n int, ok bool) {
	if bytes == 0 {
		return 0, true
	}
	if d.size == 0 {
		return 0, false
	}
	n = bytes / d.size * d.basicElements()
	rest := bytes % d.size
	for _, p := range d.components() {
		if rest == 0 {
			break
		}
		if rest >= p.n*p.size {
			n, rest = n+p.n*p.basic(), rest-p.n*p.size
			continue
		}
		n += rest / p.size * p.basic()
		if rest %= p.size; rest == 0 {
			break
		}
		if p.d == nil {
			return 0, false
		}
		more, ok := countElements(p.d, rest)
		return n + more, ok
	}
	return n, true
}

// elementBytes is how many bytes n basic elements of a datatype are. ok is false if an int does not hold
// it, or if the datatype has no elements.
func elementBytes(d *datatype, n int) (bytes int, ok bool) {
	if n == 0 {
		return 0, true
	}
	basic := d.basicElements()
	if basic == 0 || n/basic > math.MaxInt/d.size-1 {
		return 0, false
	}
	bytes = n / basic * d.size
	rest := n % basic
	for _, p := range d.components() {
		each := p.basic()
		if rest == 0 {
			break
		}
		if rest >= p.n*each {
			bytes, rest = bytes+p.n*p.size, rest-p.n*each
			continue
		}
		bytes += rest / each * p.size
		if rest %= each; rest == 0 {
			break
		}
		more, ok := elementBytes(p.d, rest)
		return bytes + more, ok
	}
	return bytes, true
}

// setElements has the status say a number of basic elements.
func setElements(e *Env, a *arguments) error {
	d, err := e.datatype(a, 1)
	if err != nil {
		return err
	}
	n, err := a.count(2)
	if err != nil {
		return err
	}
	bytes, ok := elementBytes(d, n)
	if !ok {
		return fail(a.name(2), errCount, "%d elements of %s are more than a status holds", n, d.describe())
	}
	return a.storeStatus(0, func(s []int32) {
		s[statusBytesLow], s[statusBytesHigh] = int32(uint32(bytes)), int32(uint64(bytes)>>32)
	})
}

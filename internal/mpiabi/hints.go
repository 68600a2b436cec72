package mpiabi

import (
	"maps"
	"slices"
)

// Hints of communicators, windows and files. Only files use some.

// usedHints are the hints that an object uses, in the order of their names.
func usedHints(object handled) *info {
	in := &info{}
	f, ok := object.(*file)
	if !ok {
		return in
	}
	hints := f.f.Hints()
	for _, key := range slices.Sorted(maps.Keys(hints)) {
		in.set(key, hints[key])
	}
	return in
}

// hints are those of an argument, which may be MPI_INFO_NULL.
func (e *Env) hints(a *arguments, i int) (map[string]string, error) {
	if a.Handle(i) == infoNull {
		return nil, nil //nolint:nilnil // There are none.
	}
	in, err := e.info(a, i)
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.values), nil
}

package mpiabi

import "sync"

// reuseAfter is how many handles are free before one of them is used again. A program that uses a
// handle after it was freed gets an error for so long, rather than another object.
const reuseAfter = 1024

// handleTable has the objects of dynamic handles. All types of objects have one sequence of handles, so that
// a handle of another type is found out.
type handleTable struct {
	mu    sync.RWMutex
	slots []any    // Guarded by mu. nil: the handle is free.
	free  []Handle // Guarded by mu. The one that was freed first is at the front.
}

// add gives an object a handle.
func (t *handleTable) add(object any) Handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) > reuseAfter {
		h := t.free[0]
		t.free = t.free[1:]
		t.slots[h-firstDynamic] = object
		return h
	}
	t.slots = append(t.slots, object)
	return firstDynamic + Handle(len(t.slots)-1)
}

func (t *handleTable) get(h Handle) any {
	if h < firstDynamic {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if i := h - firstDynamic; i < Handle(len(t.slots)) {
		return t.slots[i]
	}
	return nil
}

// each calls f for all objects. f uses no handles.
func (t *handleTable) each(f func(object any)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, object := range t.slots {
		if object != nil {
			f(object)
		}
	}
}

// lookup is the object of a dynamic handle. ok is false if there is none of this type.
func lookup[T any](t *handleTable, h Handle) (object T, ok bool) {
	object, ok = t.get(h).(T)
	return object, ok
}

// remove frees a handle, and returns its object. ok is false if there is none of this type.
func remove[T any](t *handleTable, h Handle) (object T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := h - firstDynamic
	if h < firstDynamic || i >= Handle(len(t.slots)) {
		return object, false
	}
	if object, ok = t.slots[i].(T); ok {
		t.slots[i] = nil
		t.free = append(t.free, h)
	}
	return object, ok
}

// replace gives a handle in use another object.
func (t *handleTable) replace(h Handle, object any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots[h-firstDynamic] = object
}

// drop frees a handle, whatever its object is.
func (t *handleTable) drop(h Handle) { remove[any](t, h) }

package mpi

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// Info are hints and assertions: values by their keys (MPI_Info, chapter The Info Object). Keys that are not
// known change nothing, and are not kept.
//
// Experimental: it may change in any release.
type Info map[string]string

// infoKey is a key that is known: its values, the first one of which is the default.
type infoKey struct {
	name string
	// values are all that there are. Of a list they are its elements, and the default is all of them.
	values []string
	list   bool
}

var (
	commKeys = []infoKey{
		{"mpi_assert_no_any_tag", []string{"false", "true"}, false},
		{"mpi_assert_no_any_source", []string{"false", "true"}, false},
		{"mpi_assert_exact_length", []string{"false", "true"}, false},
		{"mpi_assert_allow_overtaking", []string{"false", "true"}, false},
	}
	windowKeys = []infoKey{
		{"no_locks", []string{"false", "true"}, false},
		{"accumulate_ordering", []string{"rar", "raw", "war", "waw", "none"}, true},
		{"accumulate_ops", []string{"same_op_no_op", "same_op"}, false},
		{"same_size", []string{"false", "true"}, false},
		{"same_disp_unit", []string{"false", "true"}, false},
	}
)

// check says whether a value is one of the key's.
func (k infoKey) check(call, value string) error {
	parts := []string{value}
	if k.list {
		parts = strings.Split(value, ",")
	}
	for _, p := range parts {
		if !slices.Contains(k.values, p) || k.list && p == "none" && len(parts) > 1 {
			return fail(call, "info", ErrInfoValue, "%s is %.64q, want %s", k.name, value, strings.Join(k.values, " or "))
		}
	}
	return nil
}

func (k infoKey) byDefault() string {
	if k.list {
		return strings.Join(slices.DeleteFunc(slices.Clone(k.values), func(v string) bool { return v == "none" }), ",")
	}
	return k.values[0]
}

// hintSet are the hints of an object that were set.
type hintSet struct{ p atomic.Pointer[Info] }

// set adds hints, all or none.
func (h *hintSet) set(call string, keys []infoKey, given Info) error {
	known := Info{}
	for _, k := range keys {
		if v, ok := given[k.name]; ok {
			if err := k.check(call, v); err != nil {
				return err
			}
			known[k.name] = v
		}
	}
	for {
		old, next := h.p.Load(), Info{}
		if old != nil {
			maps.Copy(next, *old)
		}
		maps.Copy(next, known)
		if h.p.CompareAndSwap(old, &next) {
			return nil
		}
	}
}

// get returns all hints, also those that have their default.
func (h *hintSet) get(keys []infoKey) Info {
	all := Info{}
	for _, k := range keys {
		all[k.name] = k.byDefault()
	}
	if set := h.p.Load(); set != nil {
		maps.Copy(all, *set)
	}
	return all
}

// SetInfo gives a communicator hints (MPI_Comm_set_info). The known keys are mpi_assert_no_any_tag,
// mpi_assert_no_any_source, mpi_assert_exact_length and mpi_assert_allow_overtaking. They are kept, and make
// nothing faster. Communicators that are made of c do not have them. [ErrInfoValue]: a value is neither
// "true" nor "false", and nothing has changed.
//
// Experimental: it may change in any release.
func (c *Comm) SetInfo(info Info) (err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_set_info"
	if err := c.live(call); err != nil {
		return err
	}
	return c.info.set(call, commKeys, info)
}

// Info returns the hints of a communicator, also those that have their default (MPI_Comm_get_info).
//
// Experimental: it may change in any release.
func (c *Comm) Info() Info { return c.info.get(commKeys) }

// SetInfo gives a window hints (MPI_Win_set_info). The known keys are no_locks, accumulate_ordering,
// accumulate_ops, same_size and same_disp_unit. With accumulate_ordering "none" an accumulate of this rank
// does not wait for those that the rank has begun before. With no_locks "true" this rank's Lock and LockAll
// are [ErrRMASync]. The others are kept, and change nothing. [ErrInfoValue]: a value that the key
// does not have, and nothing has changed.
//
// Experimental: it may change in any release.
func (w *Win[T]) SetInfo(info Info) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_set_info"
	if w == nil {
		return fail(call, "win", ErrWin, "it is nil")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.freed {
		return fail(call, "win", ErrWin, "it is freed")
	}
	if err := w.info.set(call, windowKeys, info); err != nil {
		return err
	}
	now := w.info.get(windowKeys)
	w.noLocks = now["no_locks"] == "true"
	w.unordered.Store(now["accumulate_ordering"] == "none")
	return nil
}

// Info returns the hints of a window, also those that have their default (MPI_Win_get_info).
//
// Experimental: it may change in any release.
func (w *Win[T]) Info() Info { return w.info.get(windowKeys) }

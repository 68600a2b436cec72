package mpi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// Keyval names an attribute of communicators: a value of type T that a program, or a library that it
// uses, keeps with a communicator (MPI_Comm_create_keyval, chapter Groups, Contexts, Communicators,
// and Caching). A Keyval belongs to this process alone. Its methods may be called from any goroutine.
//
// Experimental: it may change in any release.
type Keyval[T any] struct{ k *keyval }

// keyval is a Keyval of any type.
type keyval struct {
	copy   func(c *Comm, value any) (copied any, ok bool, err error) // nil: it is not copied
	remove func(c *Comm, value any) error                            // nil: nothing is done
	freed  atomic.Bool
}

// NewKeyval makes a Keyval. Both functions may be nil.
//
// copy is called by [Comm.Dup] for the attribute of the communicator that is copied. It returns the
// value of the new one, and whether that has the attribute. If copy is nil it has not
// (MPI_COMM_NULL_COPY_FN). [Shared] gives it the same value.
//
// remove is called when an attribute is deleted or replaced, while Get does not find it, and by [Comm.Free] and Finalize. If it
// returns an error the attribute stays, and the call fails. The functions may call any function of this
// package.
//
// Experimental: it may change in any release.
func NewKeyval[T any](
	copy func(c *Comm, value T) (copied T, ok bool, err error), remove func(c *Comm, value T) error,
) *Keyval[T] {
	k := &keyval{}
	if copy != nil {
		k.copy = func(c *Comm, value any) (any, bool, error) { return copy(c, valueOf[T](value)) }
	}
	if remove != nil {
		k.remove = func(c *Comm, value any) error { return remove(c, valueOf[T](value)) }
	}
	return &Keyval[T]{k}
}

// valueOf is a value that Set was given. Of an interface type that may be nil, which has no dynamic type.
func valueOf[T any](value any) T {
	v, _ := value.(T)
	return v
}

// Shared is a function for NewKeyval that gives the new communicator the same value (MPI_COMM_DUP_FN).
//
// Experimental: it may change in any release.
func Shared[T any](_ *Comm, value T) (T, bool, error) { return value, true, nil }

// attribute is one of a communicator.
type attribute struct {
	key   *keyval
	value any
}

// attributes are those of a communicator, in the order in which they were set. Functions of keyvals are
// called without the lock.
type attributes struct {
	mu   sync.Mutex
	list []attribute // guarded by mu
}

func (a *attributes) index(k *keyval) int {
	return slices.IndexFunc(a.list, func(one attribute) bool { return one.key == k })
}

func (a *attributes) get(k *keyval) (any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.index(k); i >= 0 {
		return a.list[i].value, true
	}
	return nil, false
}

// snapshot is the list as it is.
func (a *attributes) snapshot() []attribute {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.list)
}

func (a *attributes) set(k *keyval, value any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.index(k); i >= 0 {
		a.list[i].value = value
		return
	}
	a.list = append(a.list, attribute{k, value})
}

// remove deletes an attribute, and calls its function, once whichever goroutines delete it. If the
// function fails the attribute is back in its place, unless there is a new one.
func (a *attributes) remove(c *Comm, k *keyval) error {
	a.mu.Lock()
	i := a.index(k)
	if i < 0 {
		a.mu.Unlock()
		return nil
	}
	one := a.list[i]
	a.list = slices.Delete(a.list, i, i+1)
	a.mu.Unlock()
	if k.remove == nil {
		return nil
	}
	err := k.remove(c, one.value)
	if err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.index(k) < 0 {
			a.list = slices.Insert(a.list, min(i, len(a.list)), one)
		}
	}
	return err
}

// check is the error of a call of a Keyval.
func (k *Keyval[T]) check(call string, c *Comm) error {
	switch {
	case k == nil || k.k == nil:
		return fail(call, "comm_keyval", ErrKeyval, "it is none: make one by NewKeyval")
	case c == nil:
		return fail(call, "comm", ErrComm, "it is nil")
	}
	return c.live(call)
}

// Set sets an attribute of a communicator (MPI_Comm_set_attr). The function of an attribute that it
// replaces is called before.
//
// Errors: [ErrKeyval]: k is nil or freed; [ErrComm]; [ErrOther]: the function has failed, and the old
// value is in place.
//
// Experimental: it may change in any release.
func (k *Keyval[T]) Set(c *Comm, value T) error {
	const call = "MPI_Comm_set_attr"
	if err := k.check(call, c); err != nil {
		return err
	}
	if k.k.freed.Load() {
		return fail(call, "comm_keyval", ErrKeyval, "it is freed")
	}
	if err := c.attributes.remove(c, k.k); err != nil {
		return &Error{Call: call, Class: ErrOther, Err: err}
	}
	c.attributes.set(k.k, value)
	return nil
}

// Get returns an attribute of a communicator (MPI_Comm_get_attr). ok is false if it has none.
//
// Experimental: it may change in any release.
func (k *Keyval[T]) Get(c *Comm) (value T, ok bool) {
	if k == nil || k.k == nil || c == nil {
		return value, false
	}
	if v, ok := c.attributes.get(k.k); ok {
		return valueOf[T](v), true
	}
	return value, false
}

// Delete deletes an attribute of a communicator (MPI_Comm_delete_attr). Nothing is done if it has none.
//
// Errors: those of Set.
//
// Experimental: it may change in any release.
func (k *Keyval[T]) Delete(c *Comm) error {
	const call = "MPI_Comm_delete_attr"
	if err := k.check(call, c); err != nil {
		return err
	}
	if err := c.attributes.remove(c, k.k); err != nil {
		return &Error{Call: call, Class: ErrOther, Err: err}
	}
	return nil
}

// Free ends the use of a Keyval (MPI_Comm_free_keyval). Attributes that were set stay, with their
// functions, and are copied.
//
// Experimental: it may change in any release.
func (k *Keyval[T]) Free() {
	if k != nil && k.k != nil {
		k.k.freed.Store(true)
	}
}

// copyAttributes gives a new communicator the attributes of c.
func (c *Comm) copyAttributes(call string, to *Comm) error {
	for _, one := range c.attributes.snapshot() {
		if one.key.copy == nil {
			continue
		}
		value, ok, err := one.key.copy(c, one.value)
		if err != nil {
			return &Error{Call: call, Class: ErrOther, Err: errors.Join(err, to.removeAttributes())}
		}
		if ok {
			to.attributes.set(one.key, value)
		}
	}
	return nil
}

// removeAttributes deletes all attributes, the last one first. It goes on after errors.
func (c *Comm) removeAttributes() error {
	var errs []error
	for _, one := range slices.Backward(c.attributes.snapshot()) {
		errs = append(errs, c.attributes.remove(c, one.key))
	}
	return errors.Join(errs...)
}

// Dup makes a communicator of the same ranks (MPI_Comm_dup). It is a collective. The new one gets the
// attributes of c, as their Keyvals say. If the function of one fails, Dup fails at this rank alone.
//
// Experimental: it may change in any release.
func (c *Comm) Dup(ctx context.Context) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_dup"
	d, err := c.dup(ctx, call)
	if err != nil {
		return nil, err
	}
	if err := c.copyAttributes(call, d); err != nil {
		return nil, err
	}
	return d.like(c), nil
}

// Free ends the use of a communicator, and deletes its attributes, the last one first (MPI_Comm_free).
// Later calls that name it are [ErrComm]. Those that are under way go on. Free is not a collective:
// other ranks may use theirs. A communicator that is not freed takes little memory, which ends with
// its last use. [ErrComm]: it is that of all ranks, or of this one, or is freed; [ErrOther]: the
// function of an attribute has failed. The communicator is freed then too.
//
// Experimental: it may change in any release.
func (c *Comm) Free() (err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_free"
	if c.id == 0 || c == c.j.self {
		return fail(call, "comm", ErrComm, "%s cannot be freed", c.Name())
	}
	if !c.freed.CompareAndSwap(false, true) {
		return c.live(call)
	}
	if err := c.removeAttributes(); err != nil {
		return &Error{Call: call, Class: ErrOther, Err: err}
	}
	return nil
}

// Shadow is a communicator of the same ranks, whose messages c does not receive. No rank waits for
// another one, and no message is sent. It is for a library that sends messages beside those of a program: a
// rank takes one for each communicator, as all that it takes receive the same messages. It has no
// attributes, and its errors are returned. It is revoked with c. A shadow may have one of its own, and that
// one has none.
//
// Experimental: it may change in any release.
func (c *Comm) Shadow() *Comm {
	id := engine.ShadowContext(c.id)
	if c.Inter() {
		return newInter(c.j, id, c.rank, c.ranks, c.peers, c.first, c.Name()+" shadow")
	}
	return newComm(c.j, id, c.rank, c.ranks, c.Name()+" shadow")
}

// live is the error of calls that name a communicator that is freed.
func (c *Comm) live(call string) error {
	if c.freed.Load() {
		return fail(call, "comm", ErrComm, "%s is freed", c.Name())
	}
	return nil
}

// Self is the communicator of this rank alone (MPI_COMM_SELF). Finalize deletes its attributes before
// anything else, the last one first, and then those of the communicator of all ranks. So a library can have
// something done at the end.
//
// Experimental: it may change in any release.
func (c *Comm) Self() *Comm { return c.j.self }

// Name is the communicator's name (MPI_Comm_get_name).
//
// Experimental: it may change in any release.
func (c *Comm) Name() string {
	if name := c.named.Load(); name != nil {
		return *name
	}
	return c.name
}

// SetName gives the communicator a name, which errors have too (MPI_Comm_set_name). Other ranks do not
// learn of it.
//
// Experimental: it may change in any release.
func (c *Comm) SetName(name string) { c.named.Store(&name) }

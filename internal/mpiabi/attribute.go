package mpiabi

import (
	"runtime"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Groups, Contexts, Communicators, and Caching": attributes. Communicators, datatypes and
// windows have them.

// keyval is a key of the program for attributes of one type of objects.
type keyval struct {
	typ    string // the type of its objects: "MPI_Comm"
	number Handle
	copy   uint64 // the function, or nullFunction or dupFunction
	remove uint64 // the function, or nullFunction
	extra  uint64
}

// Functions of keyvals that are not of the program.
const (
	nullFunction = 0 // MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN and the like
	dupFunction  = 1 // MPI_COMM_DUP_FN and the like
)

// The keys that the standard has named.
const (
	keyvalInvalid = 0

	keyTagUB         = 501
	keyIO            = 502
	keyHost          = 503
	keyWtimeIsGlobal = 504
	keyAppnum        = 505
	keyLastUsedCode  = 506
	keyUniverseSize  = 507

	keyWinBase         = 601
	keyWinDispUnit     = 602
	keyWinSize         = 603
	keyWinCreateFlavor = 604
	keyWinModel        = 605
)

// attribute is a value that an object has for a key.
type attribute struct {
	key   *keyval
	value uint64
}

// attributes are those of one object, in the order in which they were set. Functions of the program are called
// without the lock: they may set and delete attributes.
type attributes struct {
	mu   sync.Mutex
	list []attribute // Guarded by mu.
}

func (as *attributes) index(k *keyval) int {
	return slices.IndexFunc(as.list, func(one attribute) bool { return one.key == k })
}

func (as *attributes) get(k *keyval) (uint64, bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if i := as.index(k); i >= 0 {
		return as.list[i].value, true
	}
	return 0, false
}

func (as *attributes) snapshot() []attribute {
	as.mu.Lock()
	defer as.mu.Unlock()
	return slices.Clone(as.list)
}

// set sets an attribute. The delete function of the one that it replaces is called before.
func (as *attributes) set(e *Env, of Handle, k *keyval, value uint64) error {
	if err := as.remove(e, of, k); err != nil {
		return err
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	if i := as.index(k); i >= 0 { // Another thread has set it meanwhile.
		as.list[i].value = value
		return nil
	}
	as.list = append(as.list, attribute{k, value})
	return nil
}

// remove deletes an attribute, after its delete function has permitted it.
func (as *attributes) remove(e *Env, of Handle, k *keyval) error {
	value, ok := as.get(k)
	if !ok {
		return nil
	}
	if k.remove != nullFunction {
		code, err := e.callback(k.remove, uint64(of), uint64(k.number), value, k.extra)
		if err != nil {
			return err
		}
		if code != errSuccess {
			return fail("", code, "the delete function of key %d has returned code %d", k.number, code)
		}
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	if i := as.index(k); i >= 0 {
		as.list = slices.Delete(as.list, i, i+1)
	}
	return nil
}

// removeAll deletes all attributes, the last one first, up to the first whose delete function fails.
func (as *attributes) removeAll(e *Env, of Handle) error {
	for _, one := range slices.Backward(as.snapshot()) {
		if err := as.remove(e, of, one.key); err != nil {
			return err
		}
	}
	return nil
}

// copyTo gives an object that is made of another one its attributes, as their copy functions say.
func (as *attributes) copyTo(e *Env, of Handle, to *attributes) error {
	for _, one := range as.snapshot() {
		value := one.value
		switch k := one.key; k.copy {
		case nullFunction:
			continue
		case dupFunction:
		default:
			var out uint64
			var flag int32
			var pin runtime.Pinner
			pin.Pin(&out)
			pin.Pin(&flag)
			code, err := e.callback(k.copy, uint64(of), uint64(k.number), k.extra, value, address(&out), address(&flag))
			pin.Unpin()
			if err != nil {
				return err
			}
			if code != errSuccess {
				return fail("", code, "the copy function of key %d has returned code %d", k.number, code)
			}
			if flag == 0 {
				continue
			}
			value = out
		}
		to.mu.Lock()
		to.list = append(to.list, attribute{one.key, value})
		to.mu.Unlock()
	}
	return nil
}

// callback calls a function of the program that returns an error code.
func (e *Env) callback(function uint64, args ...uint64) (int32, error) {
	if e.config.Callback == nil {
		return 0, errNoCallback
	}
	return int32(uint32(e.config.Callback(function, args...))), nil
}

// attributed is a type of objects that have attributes.
type attributed struct {
	typ string
	// of is the object that argument 0 is the handle of.
	of func(e *Env, a *arguments) (*attributes, error)
	// predefined is what a key that the standard has named has as its value. known is false if the type
	// has no such key, and ok if the object has no value for it.
	predefined func(e *Env, a *arguments, key Handle) (value uint64, ok, known bool)
}

// registerAttributes registers the calls for one type of objects, by their names.
func registerAttributes(of attributed, create, free, set, get, remove string) {
	register(create, of.create)
	register(free, of.free)
	register(set, func(e *Env, a *arguments) error {
		as, err := of.of(e, a)
		if err != nil {
			return err
		}
		k, err := of.key(e, a, a.Int(1))
		if err != nil {
			return err
		}
		return as.set(e, a.Handle(0), k, a.Addr(2))
	})
	register(get, of.get)
	register(remove, func(e *Env, a *arguments) error {
		as, err := of.of(e, a)
		if err != nil {
			return err
		}
		k, err := of.key(e, a, a.Int(1))
		if err != nil {
			return err
		}
		return as.remove(e, a.Handle(0), k)
	})
}

// key is the key of the program of a number.
func (of *attributed) key(e *Env, a *arguments, number int) (*keyval, error) {
	if number > 0 && number < int(firstDynamic) {
		return nil, fail(a.name(1), errKeyval, "the program cannot set or delete attribute %d, which the standard has named", number)
	}
	k, ok := lookup[*keyval](&e.handles, Handle(number))
	if !ok || k.typ != of.typ {
		return nil, fail(a.name(1), errKeyval, "%d is no key for %s, or one that is freed", number, of.typ)
	}
	return k, nil
}

func (of *attributed) create(e *Env, a *arguments) error {
	if a.Addr(1) == dupFunction {
		return fail(a.name(1), errArg, "it is no function")
	}
	if err := a.setInt(2, keyvalInvalid); err != nil {
		return err
	}
	k := &keyval{typ: of.typ, copy: a.Addr(0), remove: a.Addr(1), extra: a.Addr(3)}
	k.number = e.handles.add(k)
	return a.setInt(2, int(k.number))
}

// free frees a key, and stores MPI_KEYVAL_INVALID in its variable. Attributes that were set with it
// keep its functions.
func (of *attributed) free(e *Env, a *arguments) error {
	number, err := a.intAt(0)
	if err != nil {
		return err
	}
	k, ok := lookup[*keyval](&e.handles, Handle(number))
	if !ok || k.typ != of.typ {
		return fail(a.name(0), errKeyval, "%d is no key of the program for %s, or one that is freed", number, of.typ)
	}
	if err := a.setInt(0, keyvalInvalid); err != nil {
		return err
	}
	remove[*keyval](&e.handles, k.number)
	return nil
}

func (of *attributed) get(e *Env, a *arguments) error {
	as, err := of.of(e, a)
	if err != nil {
		return err
	}
	if a.Addr(2) == 0 {
		return fail(a.name(2), errArg, "it is NULL, want where to store the attribute")
	}
	number := a.Int(1)
	value, ok, known := of.predefined(e, a, Handle(number))
	if !known {
		k, err := of.key(e, a, number)
		if err != nil {
			return err
		}
		value, ok = as.get(k)
	}
	if ok {
		if err := a.access(2, func() { *at[uint64](a.Addr(2)) = value }); err != nil {
			return err
		}
	}
	return a.setFlag(3, ok)
}

func init() {
	comms := attributed{"MPI_Comm", func(e *Env, a *arguments) (*attributes, error) {
		c, err := e.comm(a, 0)
		if err != nil {
			return nil, err
		}
		return &c.attributes, nil
	}, commAttribute}
	registerAttributes(comms, "MPI_Comm_create_keyval", "MPI_Comm_free_keyval",
		"MPI_Comm_set_attr", "MPI_Comm_get_attr", "MPI_Comm_delete_attr")
	// The names of MPI-1.
	registerAttributes(comms, "MPI_Keyval_create", "MPI_Keyval_free", "MPI_Attr_put", "MPI_Attr_get", "MPI_Attr_delete")

	types := attributed{"MPI_Datatype", func(e *Env, a *arguments) (*attributes, error) {
		if _, err := e.datatype(a, 0); err != nil {
			return nil, err
		}
		return e.typeAttributes(a.Handle(0)), nil
	}, func(*Env, *arguments, Handle) (uint64, bool, bool) { return 0, false, false }}
	registerAttributes(types, "MPI_Type_create_keyval", "MPI_Type_free_keyval",
		"MPI_Type_set_attr", "MPI_Type_get_attr", "MPI_Type_delete_attr")
}

// commAttributes are the values of the keys that the standard has named. A program gets their addresses.
// Go does not move them, and the environment keeps them.
type commAttributes struct {
	tagUB, io, host, wtimeIsGlobal, appnum, lastUsedCode int32
}

func newCommAttributes() *commAttributes {
	return &commAttributes{
		tagUB: mpi.MaxTag, io: mpi.AnySource, host: procNull, lastUsedCode: lastCode,
	}
}

func commAttribute(e *Env, _ *arguments, key Handle) (value uint64, ok, known bool) {
	v := e.commAttributes
	switch key {
	case keyTagUB:
		return address(&v.tagUB), true, true
	case keyIO:
		return address(&v.io), true, true
	case keyHost:
		return address(&v.host), true, true
	case keyWtimeIsGlobal:
		return address(&v.wtimeIsGlobal), true, true
	case keyAppnum:
		if v.appnum == undefined {
			return 0, false, true
		}
		return address(&v.appnum), true, true
	case keyLastUsedCode:
		return address(&v.lastUsedCode), true, true
	case keyUniverseSize: // The launcher does not say how many ranks the program could have.
		return 0, false, true
	}
	return 0, false, false
}

// typeAttributes are the attributes of a datatype, which may be a named one.
func (e *Env) typeAttributes(h Handle) *attributes {
	as, _ := e.typesAttributes.LoadOrStore(h, &attributes{})
	return as.(*attributes) //nolint:forcetypeassert // No other type is stored.
}

// copyTypeAttributes is for MPI_Type_dup: the new datatype gets the attributes of the one that it is made of.
func (e *Env) copyTypeAttributes(from, to Handle) error {
	return e.typeAttributes(from).copyTo(e, from, e.typeAttributes(to))
}

// removeTypeAttributes is for MPI_Type_free, before the handle is freed.
func (e *Env) removeTypeAttributes(h Handle) error {
	if err := e.typeAttributes(h).removeAll(e, h); err != nil {
		return err
	}
	e.typesAttributes.Delete(h)
	return nil
}

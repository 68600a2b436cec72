package mpiabi

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Chapter "The Info Object". All calls are legal before MPI_Init.

func init() {
	registerAlways("MPI_Info_create", func(e *Env, a *arguments) error { return e.addInfo(a, 0, &info{}) })
	registerAlways("MPI_Info_create_env", func(e *Env, a *arguments) error {
		out, err := envInfo(a)
		if err != nil {
			return err
		}
		return e.addInfo(a, 2, out)
	})
	registerAlways("MPI_Info_dup", func(e *Env, a *arguments) error {
		in, err := e.info(a, 0)
		if err != nil {
			return err
		}
		return e.addInfo(a, 1, in.clone())
	})
	registerAlways("MPI_Info_free", freeInfo)
	registerAlways("MPI_Info_set", setInfo)
	registerAlways("MPI_Info_delete", deleteInfo)
	registerAlways("MPI_Info_get", getInfo)
	registerAlways("MPI_Info_get_string", getInfoString)
	registerAlways("MPI_Info_get_valuelen", func(e *Env, a *arguments) error {
		value, ok, err := e.infoValue(a)
		if err != nil {
			return err
		}
		if err := a.setFlag(3, ok); err != nil || !ok {
			return err
		}
		return a.setInt(2, len(value))
	})
	registerAlways("MPI_Info_get_nkeys", func(e *Env, a *arguments) error {
		in, err := e.info(a, 0)
		if err != nil {
			return err
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		return a.setInt(1, len(in.keys))
	})
	registerAlways("MPI_Info_get_nthkey", nthKey)
	for typ, of := range map[string]holderOf{
		"MPI_Comm": func(e *Env, a *arguments) (handled, error) { return orNil(e.comm(a, 0)) },
		"MPI_Win":  func(e *Env, a *arguments) (handled, error) { return orNil(e.win(a, 0)) },
		"MPI_File": func(e *Env, a *arguments) (handled, error) { return orNil(e.file(a, 0)) },
	} {
		register(typ+"_set_info", func(e *Env, a *arguments) error {
			if _, err := of(e, a); err != nil {
				return err
			}
			_, err := e.info(a, 1) // The library uses no hint that may change.
			return err
		})
		register(typ+"_get_info", func(e *Env, a *arguments) error {
			object, err := of(e, a)
			if err != nil {
				return err
			}
			return e.addInfo(a, 1, usedHints(object))
		})
	}
	register("MPI_Comm_dup_with_info", func(e *Env, a *arguments) error {
		if a.Handle(1) != infoNull {
			if _, err := e.info(a, 1); err != nil {
				return err
			}
		}
		return e.dupComm(a, 2)
	})
}

// The sizes of keys and values, with their ends: MPI_MAX_INFO_KEY, MPI_MAX_INFO_VAL.
const (
	maxInfoKey   = 256
	maxInfoValue = 1024
)

// info is a list of keys and values.
type info struct {
	mu     sync.Mutex
	keys   []string          // in the order in which they were set. Guarded by mu.
	values map[string]string // Guarded by mu.
}

// set sets a value. The caller holds mu, or has the object for itself.
func (in *info) set(key, value string) {
	if in.values == nil {
		in.values = map[string]string{}
	}
	if _, ok := in.values[key]; !ok {
		in.keys = append(in.keys, key)
	}
	in.values[key] = value
}

func (in *info) clone() *info {
	in.mu.Lock()
	defer in.mu.Unlock()
	return &info{keys: slices.Clone(in.keys), values: maps.Clone(in.values)}
}

// environment is what MPI_INFO_ENV says.
var environment = sync.OnceValue(func() *info {
	in := &info{}
	if len(os.Args) > 0 {
		in.set("command", os.Args[0])
		if len(os.Args) > 1 {
			in.set("argv", strings.Join(os.Args[1:], " "))
		}
	}
	if name, err := os.Hostname(); err == nil {
		in.set("host", name)
	}
	in.set("arch", runtime.GOARCH)
	if dir, err := os.Getwd(); err == nil {
		in.set("wdir", dir)
	}
	in.set("thread_level", "MPI_THREAD_MULTIPLE")
	for key, value := range in.values {
		in.values[key] = value[:min(len(value), maxInfoValue-1)]
	}
	return in
})

// envInfo is the environment with the arguments of the program, which a library may not know otherwise.
func envInfo(a *arguments) (*info, error) {
	n, err := a.count(0)
	if err != nil {
		return nil, err
	}
	in := environment().clone()
	if n == 0 || a.Addr(1) == 0 {
		return in, nil
	}
	if err := a.reachable(1, n, 8); err != nil {
		return nil, err
	}
	words := make([]string, n)
	err = a.access(1, func() {
		for k, addr := range slice[uint64](a.Addr(1), n) {
			if addr != 0 {
				words[k] = cStringAt(addr, maxInfoValue-1)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	in.set("command", words[0])
	if argv := strings.Join(words[1:], " "); argv != "" {
		in.set("argv", argv[:min(len(argv), maxInfoValue-1)])
	}
	return in, nil
}

// addInfo stores the handle of a new info object.
func (e *Env) addInfo(a *arguments, i int, in *info) error {
	h := e.handles.add(in)
	err := a.setHandle(i, h)
	if err != nil {
		remove[*info](&e.handles, h)
	}
	return err
}

// info is the info object that an argument is the handle of.
func (e *Env) info(a *arguments, i int) (*info, error) { return e.infoOf(a, i, a.Handle(i)) }

// infoOf is the info object of a handle of argument i, which may be an array.
func (e *Env) infoOf(a *arguments, i int, h Handle) (*info, error) {
	switch h {
	case infoNull:
		return nil, fail(a.name(i), errInfo, "it is MPI_INFO_NULL")
	case infoEnv:
		return environment(), nil
	}
	if in, ok := lookup[*info](&e.handles, h); ok {
		return in, nil
	}
	return nil, fail(a.name(i), errInfo, "%#x is no info object, or one that is freed", uint64(h))
}

// infoKey is a key of a length that keys may have.
func infoKey(a *arguments, i int) (string, error) {
	if a.Addr(i) == 0 {
		return "", fail(a.name(i), errInfoKey, "it is NULL, want a key")
	}
	key, err := a.cString(i, maxInfoKey)
	switch {
	case err != nil:
		return "", err
	case key == "" || len(key) == maxInfoKey:
		return "", fail(a.name(i), errInfoKey, "want 1 to %d characters", maxInfoKey-1)
	}
	return key, nil
}

// changeable is info of a call that changes it.
func (e *Env) changeable(a *arguments) (*info, error) {
	if a.Handle(0) == infoEnv {
		return nil, fail(a.name(0), errInfo, "it is MPI_INFO_ENV, which does not change")
	}
	return e.info(a, 0)
}

// infoValue is the value of the key of argument 1.
func (e *Env) infoValue(a *arguments) (value string, ok bool, err error) {
	in, err := e.info(a, 0)
	if err != nil {
		return "", false, err
	}
	key, err := infoKey(a, 1)
	if err != nil {
		return "", false, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	value, ok = in.values[key]
	return value, ok, nil
}

func freeInfo(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	if _, ok := remove[*info](&e.handles, h); !ok {
		return fail(a.name(0), errInfo, "%#x is no info object that can be freed", uint64(h))
	}
	return a.setHandle(0, infoNull)
}

func setInfo(e *Env, a *arguments) error {
	in, err := e.changeable(a)
	if err != nil {
		return err
	}
	key, err := infoKey(a, 1)
	if err != nil {
		return err
	}
	if a.Addr(2) == 0 {
		return fail(a.name(2), errInfoValue, "it is NULL, want a value")
	}
	value, err := a.cString(2, maxInfoValue)
	if err != nil {
		return err
	}
	if len(value) == maxInfoValue {
		return fail(a.name(2), errInfoValue, "it has %d characters or more, want at most %d", len(value), maxInfoValue-1)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.set(key, value)
	return nil
}

func deleteInfo(e *Env, a *arguments) error {
	in, err := e.changeable(a)
	if err != nil {
		return err
	}
	key, err := infoKey(a, 1)
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if _, ok := in.values[key]; !ok {
		return fail(a.name(1), errInfoNoKey, "the info object has no key %q", key)
	}
	delete(in.values, key)
	in.keys = slices.DeleteFunc(in.keys, func(k string) bool { return k == key })
	return nil
}

// getInfo stores at most the number of characters of argument 2.
func getInfo(e *Env, a *arguments) error {
	value, ok, err := e.infoValue(a)
	if err != nil {
		return err
	}
	n := a.Int(2)
	if n < 0 {
		return fail(a.name(2), errArg, "it is %d, want 0 or more", n)
	}
	if err := a.setFlag(4, ok); err != nil || !ok {
		return err
	}
	return a.setCString(3, value[:min(n, len(value))])
}

// getInfoString stores at most what the buffer holds with the end, and how much the whole value takes.
func getInfoString(e *Env, a *arguments) error {
	value, ok, err := e.infoValue(a)
	if err != nil {
		return err
	}
	n, err := a.ints(2, 1)
	if err != nil {
		return err
	}
	if n[0] < 0 {
		return fail(a.name(2), errArg, "it is %d, want 0 or more", n[0])
	}
	if err := a.setFlag(4, ok); err != nil || !ok {
		return err
	}
	if n[0] > 0 {
		if err := a.setCString(3, value[:min(n[0]-1, len(value))]); err != nil {
			return err
		}
	}
	return a.setInt(2, len(value)+1)
}

func nthKey(e *Env, a *arguments) error {
	in, err := e.info(a, 0)
	if err != nil {
		return err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	n := a.Int(1)
	if n < 0 || n >= len(in.keys) {
		return fail(a.name(1), errArg, "it is %d, want 0 to the last of %d keys", n, len(in.keys))
	}
	return a.setCString(2, in.keys[n])
}

package unix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	sys "golang.org/x/sys/unix"
)

// where "ip netns add" puts network namespaces.
const networks = "/run/netns"

// InNetwork runs f on a thread in a network namespace that "ip netns" knows by name; without a name
// it runs f where it is. What f dials and listens at on this goroutine is there, and a program that
// f starts stays there, except in a process that has called [KeepStarter].
func InNetwork(name string, f func() error) error {
	if name == "" {
		return f()
	}
	if strings.ContainsRune(name, filepath.Separator) || name == "." || name == ".." {
		return fmt.Errorf("%q is no name of a network namespace: ip netns list has them", name)
	}
	there, err := os.Open(filepath.Join(networks, name))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no network namespace %s: ip netns list has them: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", name, err)
	}
	defer there.Close()
	runtime.LockOSThread()
	here, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", sys.Gettid()))
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("this thread's network namespace: %w", err)
	}
	defer here.Close()
	if err := sys.Setns(int(there.Fd()), sys.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s, which is root's to do: %w", name, err)
	}
	err = f()
	// A thread that cannot be given back stays locked and ends with its goroutine.
	if sys.Setns(int(here.Fd()), sys.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

package unix

import (
	"errors"
	"fmt"
	"runtime"

	sys "golang.org/x/sys/unix"
)

// MaySwitchUsers reports whether this process may start programs as any user, and end
// them. Root usually may, and so may a process that was given the capabilities.
func MaySwitchUsers() bool {
	data, err := rights()
	if err != nil {
		return false
	}
	for _, c := range []int{sys.CAP_SETUID, sys.CAP_SETGID, sys.CAP_KILL} {
		if data[c/32].Effective&(1<<(c%32)) == 0 {
			return false
		}
	}
	return true
}

func rights() (data [2]sys.CapUserData, err error) {
	h := sys.CapUserHeader{Version: sys.LINUX_CAPABILITY_VERSION_3}
	if err := sys.Capget(&h, &data[0]); err != nil {
		return data, fmt.Errorf("ask for this process's capabilities: %w", err)
	}
	return data, nil
}

// lendRights locks the goroutine to its thread, from which a program inherits these capabilities
// and no others: root's programs have theirs for being root's. What this process may do stays as it
// is. giveBack has programs inherit none, and unlocks the thread.
func lendRights(caps []int) (giveBack func(), err error) {
	runtime.LockOSThread()
	if err := inheritable(caps); err != nil {
		_ = inheritable(nil)
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("keep this process's capabilities from a program: %w", err)
	}
	return func() {
		if len(caps) == 0 || inheritable(nil) == nil { // else the thread ends with the goroutine
			runtime.UnlockOSThread()
		}
	}, nil
}

// inheritable sets what programs inherit from the thread.
func inheritable(caps []int) error {
	err := sys.Prctl(sys.PR_CAP_AMBIENT, sys.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil && !errors.Is(err, sys.EINVAL) { // kernels before 4.3 have no ambient set
		return err
	}
	data, err := rights()
	if err != nil {
		return err
	}
	var want [2]uint32
	for _, c := range caps {
		want[c/32] |= 1 << (c % 32)
	}
	if data[0].Inheritable != want[0] || data[1].Inheritable != want[1] {
		data[0].Inheritable, data[1].Inheritable = want[0], want[1]
		h := sys.CapUserHeader{Version: sys.LINUX_CAPABILITY_VERSION_3}
		if err := sys.Capset(&h, &data[0]); err != nil {
			return err
		}
	}
	for _, c := range caps {
		if err := sys.Prctl(sys.PR_CAP_AMBIENT, sys.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			return err
		}
	}
	return nil
}

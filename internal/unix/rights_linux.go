package unix

import (
	"errors"
	"fmt"
	"runtime"

	sys "golang.org/x/sys/unix"
)

// MaySwitchUsers says whether this process may start programs as any user, and end
// them: root usually may, and who was given the capabilities.
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

// keepRights locks the goroutine to its thread, from which no program inherits a
// capability any more: root's programs have theirs for being root's. What this
// process may do stays as it is.
func keepRights() error {
	runtime.LockOSThread()
	err := sys.Prctl(sys.PR_CAP_AMBIENT, sys.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if errors.Is(err, sys.EINVAL) { // kernels before 4.3 have no ambient set
		err = nil
	}
	if err == nil {
		var data [2]sys.CapUserData
		if data, err = rights(); err == nil && data[0].Inheritable|data[1].Inheritable != 0 {
			data[0].Inheritable, data[1].Inheritable = 0, 0
			h := sys.CapUserHeader{Version: sys.LINUX_CAPABILITY_VERSION_3}
			err = sys.Capset(&h, &data[0])
		}
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("keep this process's capabilities from a program: %w", err)
	}
	return nil
}

package unix

import (
	"slices"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// maxGroups bounds how many groups of a peer are read. The kernel allows 65536, which no
// user has in practice.
const maxGroups = 4096

// peerGroups gives the supplementary groups that the process at the other end of
// a unix socket had when it connected. Where the kernel does not say, or there
// are too many, they are none: fewer rights, never more.
func peerGroups(fd int) []uint32 {
	groups := make([]uint32, maxGroups)
	size := uint32(len(groups) * 4)
	_, _, e := sys.Syscall6(
		sys.SYS_GETSOCKOPT, uintptr(fd), sys.SOL_SOCKET, sys.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0,
	)
	if e != 0 {
		return nil
	}
	return slices.Clone(groups[:size/4])
}

// Package manual has what only programs in the form of the VMMC 2.0 manual need. It is made of the
// public API of package vmmc alone. docs/manual-map.md has each call of the manual and its Go form.
package manual

import "github.com/vmmc-go/vmmc"

// The return values of the manual that no call of package vmmc returns. It has the others.
const (
	Success                   vmmc.Code = 0   // the call has succeeded: in Go a nil error
	ErrBadProxyExtension      vmmc.Code = -5  // of the C library alone
	ErrUnblockedNotifications vmmc.Code = -10 // unblocking twice has no effect
	ErrNoVirtDestSpace        vmmc.Code = -13 // the addresses of a [DestSpace] are used up
	ErrNoSuchError            vmmc.Code = -20 // of the C library's DataEnd; in Go it is ok == false
)

// ErrorStr is the text of a return value (vmmc_ErrorStr).
func ErrorStr(c vmmc.Code) string { return c.Error() }

// Version is the level of the VMMC programming interface that package vmmc follows (vmmc_Version).
func Version() (major, minor uint32) { return 2, 0 }

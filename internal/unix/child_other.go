//go:build !linux

package unix

import "syscall"

// Child does nothing on this system.
type Child struct{}

func Start(Program) (*Child, error)  { return nil, ErrUnsupported }
func (*Child) PID() int              { return 0 }
func (*Child) Release()              {}
func (*Child) Await()                {}
func (*Child) Signal(syscall.Signal) {}
func (*Child) Reap() string          { return "" }

func (*Child) AwaitOr(<-chan struct{}) bool { return true }

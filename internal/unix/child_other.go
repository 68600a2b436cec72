//go:build !linux

package unix

import (
	"context"
	"syscall"
)

// Child does nothing on this system.
type Child struct{}

func Start(context.Context, Program) (*Child, error) { return nil, ErrUnsupported }
func KeepStarter() error                             { return ErrUnsupported }
func Begin(Program) (*Child, error)                  { return nil, ErrUnsupported }
func (*Child) Begun(context.Context) error           { return ErrUnsupported }
func (*Child) PID() int                              { return 0 }
func (*Child) Release()                              {}
func (*Child) Await()                                {}
func (*Child) Signal(syscall.Signal)                 {}
func (*Child) Reap() string                          { return "" }

func (*Child) AwaitOr(<-chan struct{}) bool { return true }

//go:build !linux

package unix

import (
	"sync/atomic"
	"time"
)

func CPUs() ([]int, error)          { return nil, ErrUnsupported }
func OnCPU(int, func() error) error { return ErrUnsupported }

func SleepOn(*atomic.Uint32, uint32, time.Duration) error { return ErrUnsupported }
func Rouse(*atomic.Uint32)                                {}
func AwaitInput(int, time.Duration) error                 { return ErrUnsupported }

//go:build !linux

package unix

import (
	"sync/atomic"
	"time"
)

// WordSet does nothing on this system.
type WordSet struct{}

func CPUs() ([]int, error)             { return nil, ErrUnsupported }
func OnCPUs([]int, func() error) error { return ErrUnsupported }

func OnCPU(int, func() error) error { return ErrUnsupported }
func Leave() (from, to int)         { return 0, 0 }

func SleepOn(*atomic.Uint32, uint32, time.Duration) error { return ErrUnsupported }
func Rouse(*atomic.Uint32)                                {}
func RouseAll(*atomic.Uint32)                             {}
func (*WordSet) Clear()                                   {}
func (*WordSet) Add(*atomic.Uint32, uint32)               {}
func (*WordSet) Moved(int) bool                           { return false }
func (*WordSet) Sleep() (int, error)                      { return -1, ErrUnsupported }
func CanSleepOnWords() bool                               { return false }
func AwaitInput(int, time.Duration) error                 { return ErrUnsupported }

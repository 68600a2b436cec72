//go:build !linux

package supervise

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Main does nothing on this system.
func Main(int, func() int) error { return unix.ErrUnsupported }

func userOf(int) (uint32, bool) { return 0, false }

// KillAll does nothing on this system.
func KillAll(int, string, time.Duration) []int { return nil }

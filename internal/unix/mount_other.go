//go:build !linux

package unix

import (
	"os"
	"time"
)

// Watch does nothing on this system.
type Watch struct{}

func Secret([]byte) (*os.File, error)   { return nil, ErrUnsupported }
func Detach(string) error               { return ErrUnsupported }
func WatchProcess(int) (*Watch, error)  { return nil, ErrUnsupported }
func (*Watch) Await(time.Duration) bool { return false }
func (*Watch) Close()                   {}

//go:build !linux

package unix

func CPUs() ([]int, error)          { return nil, ErrUnsupported }
func OnCPU(int, func() error) error { return ErrUnsupported }

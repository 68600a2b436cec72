//go:build !linux

package testutil

import (
	"errors"
	"syscall"
)

func lingering(int) (int, error) { return -1, errors.ErrUnsupported }

func connected(int) (int, error) { return -1, errors.ErrUnsupported }

func smallBuffers(_, _ string, _ syscall.RawConn) error { return errors.ErrUnsupported }

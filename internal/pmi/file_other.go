//go:build !unix

package pmi

import (
	"errors"
	"os"
)

// Open is not supported on this system.
func Open(int, string) (*os.File, error) { return nil, errors.ErrUnsupported }

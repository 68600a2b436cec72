//go:build !unix

package main

import "errors"

// becomeUser makes this process another user's.
func becomeUser(int) error { return errors.ErrUnsupported }

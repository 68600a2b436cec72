//go:build unix

package main

import (
	"errors"
	"syscall"
)

// becomeUser makes this process another user's.
func becomeUser(uid int) error { return errors.Join(syscall.Setgid(uid), syscall.Setuid(uid)) }

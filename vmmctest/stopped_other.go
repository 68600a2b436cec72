//go:build !linux

package vmmctest

import "syscall"

// There are no nodes here, and so no child to signal. Not all systems have the signals.
const stopSignal, continueSignal = syscall.Signal(0), syscall.Signal(0)

// stopped reports true: nothing tells.
func stopped(int) bool { return true }

//go:build !linux

package testutil

import "os/exec"

// dieWithParent does nothing: only Linux can tie a child to its parent's death.
func dieWithParent(*exec.Cmd) {}

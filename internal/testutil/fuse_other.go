//go:build !linux

package testutil

import "testing"

func noFUSE() string { return "FUSE file systems need Linux" }

func unmountFUSE(testing.TB, string) {}

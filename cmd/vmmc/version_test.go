package main

import (
	"runtime/debug"
	"testing"
)

func TestCommit(t *testing.T) {
	for _, c := range []struct{ revision, modified, want string }{
		{"0123456789abcdef0123", "false", "0123456789ab"},
		{"0123456789abcdef0123", "true", "0123456789ab+changes"},
		{"", "true", ""},
	} {
		got := commitIn([]debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: c.revision}, {Key: "vcs.modified", Value: c.modified}})
		if got != c.want {
			t.Errorf("commit %q, changed %s: %q, want %q", c.revision, c.modified, got, c.want)
		}
	}
}

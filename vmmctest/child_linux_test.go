package vmmctest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pipes counts the pipes that this process has open.
func pipes(t *testing.T) (n int) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Skipf("no list of descriptors: %v", err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// A test that kills children one after the other needs no descriptor for those that are gone.
func TestEndedChildrenHaveNoDescriptors(t *testing.T) {
	node := Nodes(t, 1)[0]
	before := pipes(t)
	for range 5 {
		p := Child(t, node, "prints")
		p.Kill()
		<-p.read
	}
	if after := pipes(t); after > before {
		t.Errorf("%d pipes are open after five children, before it were %d", after, before)
	}
}

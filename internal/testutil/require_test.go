package testutil

import (
	"fmt"
	"testing"
)

func TestRequire(t *testing.T) {
	t.Parallel()
	inner := &skipRecorder{}
	Require(inner, true, "unused")
	if inner.reason != "" {
		t.Errorf("skipped for %q though nothing is missing", inner.reason)
	}
	Require(inner, false, "needs a tool")
	if inner.reason != "needs a tool" {
		t.Errorf("skipped for %q, want the reason given", inner.reason)
	}
}

// skipRecorder keeps the reason of a skip.
type skipRecorder struct {
	testing.TB
	reason string
}

func (*skipRecorder) Helper()            {}
func (s *skipRecorder) Skip(args ...any) { s.reason = fmt.Sprint(args...) }

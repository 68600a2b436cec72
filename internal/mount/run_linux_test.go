package mount

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
)

// A program that does not end is killed with what it has started, and what it
// printed is told, without what is to be hidden.
func TestRunEndsInTime(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	p := program{name: "sh", args: []string{"-c", "echo the s3cret; sleep 1000 & sleep 1000"}, hide: Credentials{Password: "s3cret"}.hide}
	err := p.run(ctx)
	if !errors.Is(err, code.Timeout) || errors.Is(err, ErrStuck) || !strings.HasSuffix(err.Error(), "said: the …") {
		t.Errorf("%v", err)
	}
}

func TestRunTellsWhatWasSaid(t *testing.T) {
	err := program{name: "sh", args: []string{"-c", "echo one; echo two >&2; exit 3"}}.run(t.Context())
	if err == nil || err.Error() != "sh says: one two" {
		t.Errorf("%v", err)
	}
	if err := (program{name: "vmmc-no-such-program"}).run(t.Context()); !errors.Is(err, code.BadConfig) {
		t.Errorf("%v", err)
	}
	// What serves others may go on, and have the pipe.
	if err := (program{name: "sh", args: []string{"-c", "sleep 3 & exit 0"}}).run(t.Context()); err != nil {
		t.Error(err)
	}
}

package vmmc_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

func TestVersionAndSizes(t *testing.T) {
	if major, minor := manual.Version(); major != 2 || minor != 0 {
		t.Errorf("version %d.%d, the manual's is 2.0", major, minor)
	}
	if vmmc.WordSize() != 4 {
		t.Errorf("a word has %d bytes", vmmc.WordSize())
	}
	if p := vmmc.PageSize(); p < 4096 || p%os.Getpagesize() != 0 || p%vmmc.WordSize() != 0 {
		t.Errorf("a page has %d bytes, the system's %d", p, os.Getpagesize())
	}
}

// Each code that the manual does not have is also the manual's nearest one, and
// nothing is more than that.
func TestNearestManualError(t *testing.T) {
	nearest := map[vmmc.Code]vmmc.Code{
		vmmc.ErrNoRights:        vmmc.ErrBadIbufState,
		vmmc.ErrPeerGone:        vmmc.ErrBadIbufState,
		vmmc.ErrRevoked:         vmmc.ErrBadIbufState,
		vmmc.ErrStaleImport:     vmmc.ErrBadIbufState,
		vmmc.ErrClosed:          vmmc.ErrBadIbufState,
		vmmc.ErrNotRedirectable: vmmc.ErrBadRbufState,
	}
	for c := vmmc.ErrUnknown; c < 0; c++ {
		err := fmt.Errorf("around it: %w", &vmmc.Error{Op: "try", Code: c, Err: c})
		for other := vmmc.ErrUnknown; other <= 0; other++ {
			want := other == c || nearest[c] == other && other != 0
			if errors.Is(err, other) != want {
				t.Errorf("errors.Is(%v, %v) is %v", c, other, !want)
			}
		}
	}
}

func TestErrorTexts(t *testing.T) {
	if s := manual.ErrorStr(vmmc.ErrRevoked); s == "" || s != vmmc.ErrRevoked.Error() {
		t.Errorf("%q", s)
	}
	if s := manual.ErrorStr(-40); !strings.Contains(s, "unknown") || !strings.Contains(s, "-40") {
		t.Errorf("the text of an unknown code: %q", s)
	}
	// What vmmc_Error prints beside that text is in each call's own error.
	_, err := open(t, start(t)).Alloc(6)
	failsWith(t, "an allocation", err, vmmc.ErrBadAlignment, "vmmc: ", "allocate 6 bytes", "not a multiple")
}

// The manual's flags may stand together.
func TestRedirectableInGlobalSpace(t *testing.T) {
	p := open(t, start(t))
	if _, err := p.Export(1, alloc(t, p, 64), vmmc.Redirectable(), vmmc.GlobalSpace()); err != nil {
		t.Error(err)
	}
	if _, err := p.Export(2, make([]byte, 64), vmmc.Redirectable(), vmmc.GlobalSpace()); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("other memory: %v", err)
	}
}

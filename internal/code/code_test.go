package code_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
)

// numbers are given out once. They are on the wire and in other people's
// programs: a change here is a mistake, whatever it is good for.
var numbers = []struct {
	code   code.Code
	number int32
}{
	{code.Success, 0},
	{code.BadAlignment, -1},
	{code.BufAlreadyExists, -2},
	{code.BadIbufState, -3},
	{code.BadRbufState, -4},
	{code.BadProxyExtension, -5},
	{code.BadProxyAddr, -6},
	{code.BadSize, -7},
	{code.BadArg, -8},
	{code.NotImplemented, -9},
	{code.UnblockedNotifs, -10},
	{code.BlockedNotifications, -11},
	{code.NoPhysDestSpace, -12},
	{code.NoVirtDestSpace, -13},
	{code.NoMem, -14},
	{code.NoSuchNode, -15},
	{code.NoSuchProcess, -16},
	{code.NotInHandler, -17},
	{code.OverlappedBufs, -18},
	{code.InProgress, -19},
	{code.NoSuchError, -20},
	{code.NoParent, -21},
	{code.BadAsyncHandle, -22},
	{code.StaleHandle, -23},

	{code.NoRights, -64},
	{code.PeerGone, -65},
	{code.Revoked, -66},
	{code.StaleImport, -67},
	{code.NotRedirectable, -68},
	{code.Timeout, -69},
	{code.OutcomeUnknown, -70},
	{code.NoDaemon, -71},
	{code.Unreachable, -72},
	{code.Closed, -73},
	{code.Protocol, -74},
	{code.BadConfig, -75},
	{code.NoCredit, -76},
	{code.NoSuchSession, -77},
	{code.Canceled, -78},
	{code.Unknown, -79},
	{code.NameTaken, -80},
	{code.BadName, -81},
}

const unknown = "unknown error code"

func TestNumbers(t *testing.T) {
	texts := map[string]code.Code{}
	numbered := map[code.Code]bool{}
	for _, n := range numbers {
		if int32(n.code) != n.number {
			t.Errorf("%q is %d, and was %d", n.code.Error(), int32(n.code), n.number)
		}
		text := n.code.Error()
		other, twice := texts[text]
		switch {
		case strings.TrimSpace(text) == "" || strings.Contains(text, unknown):
			t.Errorf("%d has no text: %q", n.number, text)
		case twice:
			t.Errorf("%d and %d have one text: %q", n.number, other, text)
		}
		texts[text] = n.code
		numbered[n.code] = true
	}
	// All other numbers are unknown, and their text says so with the number.
	for c := code.Code(-1000); c <= 1000; c++ {
		if !numbered[c] && c.Error() != fmt.Sprintf("%s %d", unknown, int32(c)) {
			t.Errorf("%d is not in the table: %q", int32(c), c.Error())
		}
	}
}

func TestNew(t *testing.T) {
	err := fmt.Errorf("around it: %w", code.New(code.NoMem, "%d pages", 3))
	if !errors.Is(err, code.NoMem) || errors.Is(err, code.BadArg) || err.Error() != "around it: 3 pages" {
		t.Errorf("%v", err)
	}
	var c code.Code
	if !errors.As(err, &c) || c != code.NoMem {
		t.Errorf("the code of %v is %v", err, c)
	}
}

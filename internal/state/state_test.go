package state

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

type door uint8

const (
	open door = iota
	shut
	locked
)

func (d door) String() string { return [...]string{"open", "shut", "locked"}[d] }

var doors = Table[door]{open: {shut}, shut: {open, locked}, locked: {shut}}

func TestAllows(t *testing.T) {
	if !doors.Allows(shut, locked) || doors.Allows(open, locked) || doors.Allows(open, open) {
		t.Error("the table is not what is allowed")
	}
}

func TestWalk(t *testing.T) {
	set := func(from, to door) door {
		doors.Check(from, to)
		return to
	}
	if err := doors.Walk(locked, set); err != nil {
		t.Error(err)
	}
	stuck := func(from, to door) door {
		doors.Check(from, to)
		return from
	}
	if doors.Walk(locked, stuck) == nil {
		t.Error("a state that does not change passes")
	}
	unchecked := func(_, to door) door { return to }
	if err := doors.Walk(locked, unchecked); (err != nil) != invariant.Enabled {
		t.Errorf("a function that refuses nothing: %v", err)
	}
	same := Table[unnamed]{0: {1}}
	if same.Walk(1, func(_, to unnamed) unnamed { return to }) == nil {
		t.Error("states with one name pass")
	}
}

type unnamed uint8

func (unnamed) String() string { return "state" }

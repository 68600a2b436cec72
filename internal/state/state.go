// Package state holds tables of the transitions that an object's state may make. The object has
// one enum and one function that writes it, which calls [Table.Check] first.
package state

import (
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/internal/invariant"
)

// State is an enum whose values start at 0 and have names.
type State interface {
	~uint8
	fmt.Stringer
}

// Table has the states that may follow each state. A state without an entry is final.
type Table[S State] map[S][]S

// Allows reports whether to may follow from.
func (t Table[S]) Allows(from, to S) bool { return slices.Contains(t[from], to) }

// Check ends the program if to may not follow from, where invariant.Enabled. Without that it costs
// nothing.
func (t Table[S]) Check(from, to S) {
	if invariant.Enabled {
		invariant.Check(t.Allows(from, to), "%T %q after %q", to, to.String(), from.String())
	}
}

// Walk is for tests. For each pair of states up to last it calls step, which makes an object in
// state from, has the object's transition function change the state to to, and returns the state
// that the object then has. The error names a transition of the table that fails, another one that
// is not refused, or states that share a name. Where invariant.Enabled is false nothing is refused,
// and Walk tries the transitions of the table alone.
func (t Table[S]) Walk(last S, step func(from, to S) S) error {
	names := map[string]bool{}
	for from := range last + 1 {
		if names[from.String()] {
			return fmt.Errorf("two states have the name %q", from)
		}
		names[from.String()] = true
		for to := range last + 1 {
			allowed := t.Allows(from, to)
			if !allowed && !invariant.Enabled {
				continue
			}
			got, refusal := try(step, from, to)
			switch {
			case allowed && (refusal != nil || got != to):
				return fmt.Errorf("from %v to %v: the state is %v (%v)", from, to, got, refusal)
			case !allowed && refusal == nil:
				return fmt.Errorf("from %v to %v is not refused", from, to)
			}
		}
	}
	return nil
}

// try calls step and returns what it panics with.
func try[S State](step func(from, to S) S, from, to S) (got S, refusal any) {
	defer func() { refusal = recover() }()
	return step(from, to), nil
}

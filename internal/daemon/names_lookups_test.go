package daemon

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
)

// A user of another node has room for its imports however many others of the node make, and what
// has ended is not counted.
func TestGuests(t *testing.T) {
	var g remoteLookups
	var leaves []func()
	enter := func(node, user string, n int) (err error) {
		for range n {
			_, leave, err := g.begin(node, user)
			if err != nil {
				return err
			}
			leaves = append(leaves, leave)
		}
		return nil
	}
	if err := enter("a", "u", maxUserLookups); err != nil {
		t.Fatal(err)
	}
	if err := enter("a", "u", 1); !errors.Is(err, code.NoMem) {
		t.Errorf("one too many of a user: %v", err)
	}
	for i := 1; i < maxNodeLookups/maxUserLookups; i++ {
		if err := enter("a", fmt.Sprint(i), maxUserLookups); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("a", "v", 1); !errors.Is(err, code.NoMem) {
		t.Errorf("one too many of a node: %v", err)
	}
	if err := enter("b", "u", 1); err != nil {
		t.Errorf("another node: %v", err)
	}
	for _, leave := range leaves {
		leave()
	}
	if len(g.nodes) > 0 {
		t.Errorf("%d nodes are left", len(g.nodes))
	}
}

package nodeconn

import (
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

func TestNodeConnTransitions(t *testing.T) {
	refusal := errors.New("because")
	if err := transitions.Walk(stateClosed, func(from, to connState) connState {
		c := &Conn{state: from, changed: make(chan struct{})}
		changed := c.changed
		if !c.setState(to, nil, refusal) { // closed, which refuses quietly
			panic("closed")
		}
		select {
		case <-changed:
		default:
			if to != stateAway {
				t.Errorf("from %v to %v: a waiter sleeps on", from, to)
			}
		}
		return c.state
	}); err != nil {
		t.Error(err)
	}
}

package daemon

import (
	"context"
	"errors"
	"testing"
)

// One user's request waits for another one of the same user, and for no other user's.
func TestPerUser(t *testing.T) {
	var all perUser
	enter := func(user string) func() {
		leave, err := all.enter(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	first := enter("a")
	enter("b")()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := all.enter(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second request of the user: %v", err)
	}
	first()
	enter("a")()
	if len(all.users) > 0 {
		t.Errorf("%d users are left", len(all.users))
	}
}

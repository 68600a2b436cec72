package daemon

import (
	"context"
	"sync"

	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// perUser lets one request of each user run at a time. The zero value has none.
type perUser struct {
	mu    sync.Mutex
	users map[string]*userTurn // present while it has requests. Guarded by mu.
}

// userTurn is the requests of one user.
type userTurn struct {
	sem      *semaphore.Semaphore
	requests int // running and waiting. Guarded by perUser.mu.
}

// enter waits until no other request of the user runs. The caller calls leave.
func (t *perUser) enter(ctx context.Context, user string) (leave func(), err error) {
	t.mu.Lock()
	u := t.users[user]
	if u == nil {
		if t.users == nil {
			t.users = map[string]*userTurn{}
		}
		u = &userTurn{sem: semaphore.New(1)}
		t.users[user] = u
	}
	u.requests++
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if u.requests--; u.requests == 0 {
			delete(t.users, user)
		}
	}
	if !u.sem.TryAcquire() {
		rejoin := fairshare.Leave(ctx)
		err := u.sem.Acquire(ctx)
		rejoin()
		if err != nil {
			forget()
			return nil, err
		}
	}
	return func() { u.sem.Release(); forget() }, nil
}

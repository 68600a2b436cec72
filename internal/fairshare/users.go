package fairshare

import (
	"runtime"
	"sync"
)

// Users are the shares of users. The zero value has none.
type Users struct {
	mu     sync.Mutex
	shares map[uint32]*userShare // by user id; present while it has connections. Guarded by mu.
}

type userShare struct {
	*Share
	conns int // Guarded by Users.mu.
}

// Join returns the share of a user, which the user's connections have in common. The caller calls
// leave when the connection has ended.
func (u *Users) Join(uid uint32) (s *Share, leave func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	in := u.shares[uid]
	if in == nil {
		if u.shares == nil {
			u.shares = map[uint32]*userShare{}
		}
		// As many as can run. One processor is left for others: a scheduler that has ready
		// goroutines for all processors looks for packets every 10 ms only.
		in = &userShare{Share: New(runtime.GOMAXPROCS(0) - 1)}
		u.shares[uid] = in
	}
	in.conns++
	return in.Share, sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if in.conns--; in.conns == 0 {
			delete(u.shares, uid)
		}
	})
}

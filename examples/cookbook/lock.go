package cookbook

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/view"
)

// Accounts has two accounts, which hold 1000 together, and their lock.
func Accounts(ctx context.Context, p *vmmc.Process) {
	accounts, err := view.Export[int32](p, 1, 2, vmmc.WithName("accounts"))
	check(err)
	accounts.Slice()[0] = 1000
	_, err = lock.Host(ctx, p, "accounts lock")
	check(err)
	fmt.Println("ready")
	<-ctx.Done()
}

// Transfer moves an amount. If the process that had the lock before has died, it may have moved a
// half: what is missing is found first.
func Transfer(ctx context.Context, m *lock.Mutex, accounts *view.Remote[int32], amount int32) {
	h, err := m.Lock(ctx)
	check(err)
	var has [2]int32
	check(accounts.Get(ctx, 0, has[:]))
	if h.Abandoned() {
		has[1] = 1000 - has[0]
	}
	check(accounts.Store(ctx, 0, has[0]-amount))
	check(accounts.Store(ctx, 1, has[1]+amount))
	h.Repaired()
	check(h.Unlock(ctx)) // what was stored is in place
}

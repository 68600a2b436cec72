package cookbook

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// ledger opens the accounts and their lock.
func ledger(ctx context.Context, p *vmmc.Process) (*lock.Mutex, *view.Remote[int32]) {
	m, err := lock.Open(ctx, p, "accounts lock")
	check(err)
	im, err := p.ImportName(ctx, "accounts")
	check(err)
	r, err := view.RemoteOf[int32](im)
	check(err)
	return m, r
}

func init() {
	vmmctest.Role("accounts", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		Accounts(ctx, p)
		return nil
	})
	vmmctest.Role("transfer", func(ctx context.Context, p *vmmc.Process, args ...string) error {
		m, accounts := ledger(ctx, p)
		for range number(args[0]) {
			Transfer(ctx, m, accounts, 1)
		}
		fmt.Println("done")
		return m.Close(ctx)
	})
	vmmctest.Role("half a transfer", func(ctx context.Context, p *vmmc.Process, _ ...string) error {
		m, accounts := ledger(ctx, p)
		_, err := m.Lock(ctx)
		check(err)
		first, err := accounts.Load(ctx, 0)
		check(err)
		check(accounts.Store(ctx, 0, first-100))
		fmt.Println("half")
		return stay(ctx)
	})
}

// A holder that dies in the middle leaves an account short, and the next one makes it good.
func TestLock(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	lines(t, vmmctest.Child(t, nodes[0], "accounts"), "ready")
	half := vmmctest.Child(t, nodes[0], "half a transfer")
	lines(t, half, "half")
	procs := []*vmmctest.Proc{
		vmmctest.Child(t, nodes[0], "transfer", "100"),
		vmmctest.Child(t, nodes[0], "transfer", "200"),
	}
	half.Kill()
	for _, p := range procs {
		lines(t, p, "done")
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	var has [2]int32
	_, accounts := ledger(t.Context(), nodes[0].Open(t))
	check(accounts.Get(t.Context(), 0, has[:]))
	if want := [2]int32{600, 400}; has != want {
		t.Errorf("the accounts have %v, want %v", has, want)
	}
}

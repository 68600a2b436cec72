package lock_test

import (
	"context"
	"fmt"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/lock"
	"github.com/vmmc-go/vmmc/node"
)

// Two processes change what a third one has, one at a time.
func Example() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()

	server, err := lock.Host(ctx, a, "ledger")
	check(err)
	defer server.Close()

	m, err := lock.Open(ctx, b, "ledger") // mostly another program
	check(err)
	defer m.Close(ctx)

	h, err := m.Lock(ctx)
	check(err)
	if h.Abandoned() { // the holder before has died
		fmt.Println("repaired")
		h.Repaired()
	}
	fmt.Println("changed")
	check(h.Unlock(ctx))
	// Output: changed
}

// What the lock protects elsewhere refuses holders before the last one that it has seen.
func ExampleHeld_Token() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, err := lock.Host(ctx, a, "ledger", lock.MaxClients(10), lock.After(1000),
		lock.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{b.ID()}}))
	check(err)
	defer server.Close()
	m, err := lock.Open(ctx, b, "ledger")
	check(err)
	defer m.Close(ctx)

	last := uint64(1000) // the highest token that the ledger has seen
	h, ok, err := m.TryLock(ctx)
	check(err)
	fmt.Println(ok, h.Token() > last, h.Abandoned(), server.Clients())
	select {
	case <-h.Lost():
		fmt.Println("the host is gone")
	default:
	}
	h.Repaired()
	check(h.Unlock(ctx))
	// Output: true true true 1
}

// processes opens two processes of a node.
func processes(ctx context.Context) (a, b *vmmc.Process, end func()) {
	n, err := node.Start()
	check(err)
	a, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	b, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket()))
	check(err)
	return a, b, func() {
		a.Close()
		b.Close()
		n.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Two processes at most work at a time.
func ExampleSemaphore() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, err := lock.HostSemaphore(ctx, a, "workers", 2)
	check(err)
	defer server.Close()
	s, err := lock.OpenSemaphore(ctx, b, "workers")
	check(err)
	defer s.Close(ctx)

	first, err := s.Acquire(ctx)
	check(err)
	second, ok, err := s.TryAcquire(ctx)
	check(err)
	fmt.Println(ok)
	_, ok, err = s.TryAcquire(ctx)
	check(err)
	fmt.Println(ok)
	check(first.Release(ctx))
	select {
	case <-second.Lost():
		fmt.Println("the host is gone")
	default:
	}
	check(second.Release(ctx))
	// Output:
	// true
	// false
}

// One process fills the cache.
func ExampleOnce() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, err := lock.HostOnce(ctx, a, "filled")
	check(err)
	defer server.Close()
	o, err := lock.OpenOnce(ctx, b, "filled")
	check(err)
	defer o.Close(ctx)

	for range 2 {
		check(o.Do(ctx, func(context.Context) error {
			fmt.Println("fills")
			return nil
		}))
	}
	fmt.Println(o.Done())
	// Output:
	// fills
	// true
}

// Processes take numbers.
func ExampleCounter() {
	ctx := context.Background()
	a, b, end := processes(ctx)
	defer end()
	server, err := lock.HostCounter(ctx, a, "numbers", 100)
	check(err)
	defer server.Close()
	c, err := lock.OpenCounter(ctx, b, "numbers")
	check(err)
	defer c.Close()

	n, err := c.Add(ctx, 1)
	check(err)
	fmt.Println(n)
	n, err = c.Load(ctx)
	check(err)
	fmt.Println(n)
	// Output:
	// 101
	// 101
}

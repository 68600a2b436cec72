package link

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testGate is a gate with the calls of the outside.
type testGate struct {
	levels, running, pending atomic.Uint32
	e                        *Engine
}

func (g *testGate) block() {
	g.levels.Add(1)
	for g.running.Load() != GateIdle {
		g.running.CompareAndSwap(GateRunning, GateAwaited)
		runtime.Gosched()
	}
}

func (g *testGate) unblock() {
	if g.levels.Add(^uint32(0)) == 0 && g.pending.Load() != 0 {
		g.e.GateOpened()
	}
}

// While the gate has a level no handler runs. What came meanwhile runs
// when the level is gone.
func TestGate(t *testing.T) {
	e, own := engine(t)
	g := &testGate{e: e}
	e.SetGate(&Gate{Levels: &g.levels, Running: &g.running, Pending: &g.pending})
	importer, page := engine(t)
	var ran atomic.Uint32
	var inHandler atomic.Bool
	m := linkTo(t, importer, page, e, own, func(int, uint32, []byte) {
		inHandler.Store(true)
		runtime.Gosched()
		ran.Add(1)
		inHandler.Store(false)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const messages = 3000
	var wg sync.WaitGroup
	var over atomic.Bool
	for range 2 {
		wg.Go(func() {
			for !over.Load() {
				g.block()
				n := ran.Load()
				runtime.Gosched()
				if inHandler.Load() || ran.Load() != n || !e.Blocked() {
					t.Error("a handler runs while the gate has a level")
				}
				g.unblock()
				runtime.Gosched()
			}
		})
	}
	for range messages {
		if err := m.SendNotify(ctx, 0, []byte{1, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	until := func(n uint32) {
		for ran.Load() < n && ctx.Err() == nil {
			time.Sleep(10 * time.Microsecond)
		}
		if ran.Load() != n {
			t.Fatalf("%d handlers have run, want %d", ran.Load(), n)
		}
	}
	until(messages)
	over.Store(true)
	wg.Wait()
	g.block()
	if err := m.SendNotify(ctx, 0, []byte{1, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	for g.pending.Load() == 0 && ctx.Err() == nil { // the dispatcher has found it
		time.Sleep(10 * time.Microsecond)
	}
	g.unblock()
	until(messages + 1)
}

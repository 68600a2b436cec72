package vmmc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// A wait for words ends with the process that is to change one of them. What that process sent last
// comes first, whichever of the links ends last.
func TestWaitAnyFrom(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			a, b, c := join(t, near), join(t, far), join(t, near)
			var opts []vmmc.ExportOption
			if way == "stream" {
				opts = append(opts, vmmc.Unmapped())
			}
			_, ofB, _ := bothWays(t, a, b, opts...)
			exp, err := a.Export(2, alloc(t, a, 64), opts...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Export(1, alloc(t, c, 64), opts...); err != nil {
				t.Fatal(err)
			}
			ofC, err := a.Import(within(t), c.Node(), c.PID(), 1)
			if err != nil {
				t.Fatal(err)
			}
			toA, err := b.Import(within(t), a.Node(), a.PID(), 2)
			if err != nil {
				t.Fatal(err)
			}
			var ws []vmmc.Watch
			for i, im := range []*vmmc.Import{ofC, ofB, nil} {
				w, err := exp.Word(4 * i)
				if err != nil {
					t.Fatal(err)
				}
				ws = append(ws, vmmc.Watch{Word: w, From: im})
			}
			type result struct {
				i   int
				err error
			}
			wait := func() chan result {
				r := make(chan result, 1)
				go func() {
					i, err := a.WaitAny(within(t), ws...)
					r <- result{i, err}
				}()
				return r
			}
			r := wait()
			if err := toA.Send(within(t), w32(1), 8); err != nil {
				t.Fatal(err)
			}
			if r := <-r; r.i != 2 || r.err != nil {
				t.Errorf("word %d: %v, want 2", r.i, r.err)
			}
			ws[2].Old = 1
			r = wait()
			if err := toA.Send(within(t), w32(1), 0); err != nil { // the last word of b
				t.Fatal(err)
			}
			if err := toA.Fence(within(t)); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if r := <-r; r.i != 0 || r.err != nil {
				t.Errorf("word %d: %v, want 0", r.i, r.err)
			}
			ws[0].Old = 1
			for range 2 { // while it ends, and when it has
				i, err := a.WaitAny(within(t), ws...)
				if e := ofB.Err(); i != 1 || !errors.Is(err, vmmc.ErrBadIbufState) || !errors.Is(err, codeOf(e)) {
					t.Errorf("watch %d: %v, want 1: %v", i, err, e)
				}
			}
			if err := ofC.Close(); err != nil {
				t.Fatal(err)
			}
			if i, err := a.WaitAny(within(t), ws...); i != 0 || !errors.Is(err, vmmc.ErrClosed) {
				t.Errorf("watch %d of an import that was closed: %v", i, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := a.WaitAny(ctx, ws[2]); !errors.Is(err, vmmc.ErrCanceled) {
				t.Errorf("a cancelled wait: %v", err)
			}
			if _, err := c.WaitAny(within(t), ws...); !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("another process's import: %v", err)
			}
		})
	}
}

// A wait of WaitAny ends with an exporter that dies only when its last message is there.
func TestWaitAnyAfterTheLastMessage(t *testing.T) {
	for _, held := range []int{0, 1} {
		t.Run([]string{"the importer's link ends last", "the exporter's link ends last"}[held], func(t *testing.T) {
			here, there := nodes(t, "between nodes")
			a, b := join(t, here), join(t, there)
			g := newGate(t, held)
			vmmc.SetDialer([]*vmmc.Process{b, a}[held], g.dial)
			_, far, _ := bothWays(t, a, b)
			exp, err := a.Export(2, alloc(t, a, 64))
			if err != nil {
				t.Fatal(err)
			}
			toA, err := b.Import(within(t), a.Node(), a.PID(), 2)
			if err != nil {
				t.Fatal(err)
			}
			w, err := exp.Word(0)
			if err != nil {
				t.Fatal(err)
			}
			g.shut.Store(true)
			got := make(chan error, 1)
			go func() {
				_, err := a.WaitAny(within(t), vmmc.Watch{Word: w, From: far})
				got <- err
			}()
			if err := toA.Send(within(t), w32(5), 0); err != nil {
				t.Fatal(err)
			}
			vmmc.SeverLinks(b) // as if it had died
			if held == 0 {
				until(t, "the import fails", func() bool { return far.Err() != nil })
			}
			g.open()
			if err := <-got; err != nil || w.Load() != 5 {
				t.Errorf("the wait ended with %v, and the word is %d", err, w.Load())
			}
		})
	}
}

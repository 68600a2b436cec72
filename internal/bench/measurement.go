package bench

import (
	"context"
	"fmt"
	"slices"
)

// measurement is one thing that is measured.
type measurement struct {
	name  string
	sizes []int // if the user gives none; of one that has no sizes, its greatest number
	fixed bool  // it has no sizes
	curve bool  // it is drawn
	run   func(ctx context.Context, e *end, size int) error
}

// farJob is what the far end does in a job. It calls ready when the clock may run.
type farJob func(ctx context.Context, e *end, j job) ([]float64, error)

// Fixed reports whether a measurement has no sizes.
func Fixed(name string) bool { return find(name).fixed }

// Drawn reports whether there is a figure of a measurement.
func Drawn(name string) bool { return find(name).curve }

// Measurements are the names of all, in the order of a run.
func Measurements() []string {
	var out []string
	for _, m := range measurements() {
		out = append(out, m.name)
	}
	return out
}

func find(name string) measurement {
	all := measurements()
	i := slices.IndexFunc(all, func(m measurement) bool { return m.name == name })
	if i < 0 {
		return measurement{}
	}
	return all[i]
}

func measurements() []measurement {
	small, long := []int{4, 64, 1024, 4096}, Doubling(64<<10, 4<<20)
	return []measurement{
		{"latency", small, false, true, latency},
		{"bandwidth", long, false, true, bandwidth},
		{"bidir", long, false, true, bidir},
		{"fetch", []int{4, 64, 4096}, false, false, fetch},
		{"rate", []int{8}, false, false, rate},
		{"load", []int{64}, false, false, load},
		{"overhead", []int{8, 64, 1024}, false, true, overhead},
		{"notify", []int{4}, true, false, notify},
		{"import", []int{10000}, true, false, imports},
		{"scale", []int{1000}, true, false, scale},
		{"breakdown", []int{64}, false, false, breakdown},
		{"via", []int{64, 1 << 20}, false, false, viaSends},
		{"rpc", []int{1 << 20}, true, false, rpc},
		{"c", []int{64, 64 << 10, 1 << 20}, false, false, inC},
	}
}

// jobs are what the far end can do.
var jobs = map[string]farJob{
	"pong":      pong,
	"sink":      sink,
	"both":      bothFar,
	"provide":   provide,
	"count":     count,
	"arrivals":  arrivals,
	"bursts":    takeBursts,
	"flagged":   flagged,
	"confirm":   confirm,
	"handle":    handle,
	"signalled": signalled,
	"exports":   exports,
	"memory":    memory,
	"stamp":     stamp,
	"viaopen":   viaOpen,
	"viapong":   viaPong,
	"viaend":    viaEnds,
	"rpcserve":  rpcServe,
	"rpcround":  rpcRound,
	"rpcend":    rpcEnd,
}

// measure is the near end: all that is wanted, one after another.
func (e *end) measure(ctx context.Context) error {
	type step struct {
		measurement
		size int
	}
	var steps []step
	for _, name := range e.What {
		m := find(name)
		if m.run == nil {
			return fmt.Errorf("no measurement %q", name)
		}
		sizes := m.sizes
		if e.Curve && m.curve {
			sizes = Doubling(4, 4<<20)
		}
		if len(e.Sizes) > 0 && !m.fixed {
			sizes = e.Sizes
		}
		for _, s := range sizes {
			steps = append(steps, step{m, s})
		}
	}
	e.total = len(steps)
	for _, s := range steps {
		if err := s.run(ctx, e, s.size); err != nil {
			return err
		}
		if err := e.progress(s.name); err != nil {
			return err
		}
	}
	return nil
}

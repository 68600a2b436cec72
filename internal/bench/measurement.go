package bench

import (
	"context"
	"fmt"
	"slices"
)

// measurement is one thing that is measured.
type measurement struct {
	name   string
	local  []int // sizes, if the user gives none
	remote []int
	run    func(ctx context.Context, e *end, size int) error
}

// farJob is what the far end does in a job. It calls ready when the clock may run.
type farJob func(ctx context.Context, e *end, j job) ([]float64, error)

// Fixed says whether a measurement has no sizes.
func Fixed(name string) bool { return len(find(name).local) == 1 && find(name).local[0] == 0 }

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
	long := Doubling(64<<10, 4<<20)
	return []measurement{
		{"latency", []int{4, 64, 1024, 4096}, []int{4, 64, 1024, 4096}, latency},
		{"bandwidth", long, long, bandwidth},
		{"fetch", []int{4, 64, 4096}, []int{4, 64, 4096}, fetch},
		{"rate", []int{8}, []int{8}, rate},
		{"overhead", []int{8, 64, 1024}, []int{8, 64, 1024}, overhead},
	}
}

// jobs are what the far end can do.
var jobs = map[string]farJob{
	"pong":    pong,
	"sink":    sink,
	"provide": provide,
	"count":   count,
	"bursts":  takeBursts,
	"confirm": confirm,
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
		sizes := m.local
		if e.Path == Remote {
			sizes = m.remote
		}
		if len(e.Sizes) > 0 && !Fixed(name) {
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

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A probe is one round of a measurement. It returns a rate, or records latencies
// into h, whose median is then the round's value.
type probe func(ctx context.Context, h *hist) (float64, error)

// hist is a round's latencies.
type hist struct{ h *hdrhistogram.Histogram }

func newHist() *hist { return &hist{hdrhistogram.New(1, int64(time.Minute), 3)} }

func (h *hist) add(d time.Duration) { _ = h.h.RecordValue(int64(d)) }

func (h *hist) at(q float64) float64 { return float64(h.h.ValueAtQuantile(q)) }

// skipping leaves out the first n of what is added.
func (h *hist) skipping(n int) func(time.Duration) {
	return func(d time.Duration) {
		if n--; n < 0 {
			h.add(d)
		}
	}
}

// side is ours, or the limit.
type side struct {
	run    probe
	values []float64
	all    *hist
}

func (s *side) round(ctx context.Context, counts bool) error {
	h := newHist()
	v, err := s.run(ctx, h)
	if err != nil || !counts {
		return err
	}
	if h.h.TotalCount() > 0 {
		v = h.at(50)
		s.all.h.Merge(h.h)
	}
	s.values = append(s.values, v)
	return nil
}

// compare runs ours and the limit by turns, so that a disturbed moment hits both,
// and reports. The first round warms up and does not count. limit may be nil.
func (e *end) compare(ctx context.Context, r Result, ours, limit probe) error {
	return e.compareAll(ctx, []Result{r}, []probe{ours}, limit)
}

// compareAll is compare of several that have the same limit.
func (e *end) compareAll(ctx context.Context, rs []Result, ours []probe, limit probe) error {
	return e.besidePeers(ctx, rs, ours, limit, nil, nil, 0)
}

// besidePeers is compareAll where peers take turns, too, each by round. The first of the results,
// as many as stand beside them, are reported beside each peer as well.
func (e *end) besidePeers(
	ctx context.Context, rs []Result, ours []probe, limit probe, peers []*peer,
	round func(*peer, *hist) (float64, error), stand int,
) error {
	probes := slices.Clip(ours)
	for _, p := range peers {
		probes = append(probes, func(_ context.Context, h *hist) (float64, error) { return round(p, h) })
	}
	if limit != nil {
		probes = append(probes, limit)
	}
	sides, err := e.turns(ctx, probes)
	if err != nil {
		return fmt.Errorf("%s: %w", rs[0].title(), err)
	}
	var most *side
	if limit != nil {
		most = sides[len(sides)-1]
	}
	for k, r := range rs {
		if err := e.beside(r, sides[k], most); err != nil {
			return err
		}
	}
	for k, p := range peers {
		for i, r := range rs[:stand] {
			r.LimitIs = p.Name
			if err := e.beside(r, sides[i], sides[len(rs)+k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// turns runs all rounds, in each of which all probes take turns.
func (e *end) turns(ctx context.Context, probes []probe) ([]*side, error) {
	var sides []*side
	for _, p := range probes {
		sides = append(sides, &side{run: p, all: newHist()})
	}
	for i := range e.Rounds + 1 {
		for _, s := range sides {
			if err := s.round(ctx, i > 0); err != nil {
				return nil, err
			}
		}
	}
	return sides, nil
}

// beside reports what was found beside the limit, if there is one.
func (e *end) beside(r Result, ours, limit *side) error {
	r.Rounds = e.Rounds
	r.ours(ours)
	if limit != nil {
		unit := r.unit()
		r.Limit = median(limit.values) / unit
		r.Ratio = median(ratios(ours.values, limit.values))
		if h := limit.all; h.h.TotalCount() > 0 {
			r.LimitP99, r.LimitP999 = h.at(99)/unit, h.at(99.9)/unit
		}
	}
	return e.report(r)
}

// compareTo runs ours alone and reports it beside a limit that is there already. It
// returns the median.
func (e *end) compareTo(ctx context.Context, r Result, ours probe) (float64, error) {
	s := &side{run: ours, all: newHist()}
	for i := range e.Rounds + 1 {
		if err := s.round(ctx, i > 0); err != nil {
			return 0, fmt.Errorf("%s: %w", r.title(), err)
		}
	}
	r.Rounds = e.Rounds
	r.ours(s)
	if r.Limit > 0 {
		r.Ratio = r.Value / r.Limit
	}
	return r.Value, e.report(r)
}

// measureOnly runs ours alone and reports nothing.
func (e *end) measureOnly(ctx context.Context, ours probe) (float64, error) {
	s := &side{run: ours, all: newHist()}
	for i := range e.Rounds + 1 {
		if err := s.round(ctx, i > 0); err != nil {
			return 0, err
		}
	}
	return median(s.values), nil
}

// report passes a result on, and how far the run is.
func (e *end) report(r Result) error {
	r.Path, r.Pin = e.Path, e.Pin
	return e.say.Encode(event{Result: &r})
}

// progress says that another of the run's steps is done.
func (e *end) progress(what string) error {
	e.done++
	return e.say.Encode(event{What: what, Done: e.done, Of: e.total})
}

// count is how many exchanges a round has: most, fewer if the messages are long, so
// that about total bytes go.
func (e *end) count(size, most, total int) int {
	if e.Count > 0 {
		return e.Count
	}
	n := min(most, max(8, total/size))
	if e.Quick {
		n = max(8, n/10)
	}
	return n
}

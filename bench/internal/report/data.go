// Package report writes the document of a run: tables, figures, and what of the promised bars
// holds.
package report

import (
	"maps"
	"math"
	"slices"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
	"github.com/vmmc-go/vmmc/bench/internal/stat"
)

// data is a run by what was measured.
type data struct {
	run *sample.Run
	by  map[sample.Key]*series
}

// series is one figure over the rounds.
type series struct {
	key    sample.Key
	unit   string
	mean   bool
	values map[int]float64
	own    []float64 // the ratios that our tool tells
	p99    []float64
	batch  []float64
}

func newData(run *sample.Run) *data {
	d := &data{run, map[sample.Key]*series{}}
	for _, s := range run.Samples {
		of := d.by[s.Key]
		if of == nil {
			of = &series{key: s.Key, unit: s.Unit, mean: s.Mean, values: map[int]float64{}}
			d.by[s.Key] = of
		}
		of.values[s.Round] = s.Value
		for _, more := range []struct {
			v  float64
			to *[]float64
		}{{s.Ratio, &of.own}, {s.P99, &of.p99}, {s.Batch, &of.batch}} {
			if more.v > 0 {
				*more.to = append(*more.to, more.v)
			}
		}
	}
	return d
}

// median is NaN where nothing was measured.
func (s *series) median() float64 {
	if s == nil {
		return math.NaN()
	}
	return stat.Median(slices.Collect(maps.Values(s.values)))
}

// ratio is the median of the ratios of each round.
func ratio(of, to *series) float64 {
	if of == nil || to == nil {
		return math.NaN()
	}
	return stat.Median(stat.Ratios(of.values, to.values))
}

func (s *series) ownRatio() float64 {
	if s == nil {
		return math.NaN()
	}
	return stat.Median(s.own)
}

func (d *data) at(contender, how, what, place string, size int) *series {
	return d.by[sample.Key{Contender: contender, How: how, What: what, Place: place, Size: size}]
}

// way is one line of a table or figure: a contender's way of doing something.
type way struct{ contender, how string }

func (w way) name() string {
	if w.how == "" {
		return w.contender
	}
	return w.contender + ", " + w.how
}

// ways are all that measured something in a place, ours first.
func (d *data) ways(what, place string) []way {
	seen := map[way]bool{}
	for k := range d.by {
		if k.What == what && k.Place == place {
			seen[way{k.Contender, k.How}] = true
		}
	}
	rank := func(w way) int {
		return max(slices.Index([]string{"", sample.C, sample.Limit, sample.Ours}, w.contender), 0)
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b way) int {
		if r := rank(b) - rank(a); r != 0 {
			return r
		}
		if a.name() < b.name() {
			return -1
		}
		return 1
	})
}

func (d *data) sizes(what, place string) []int {
	seen := map[int]bool{}
	for k := range d.by {
		if k.What == what && k.Place == place {
			seen[k.Size] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// best is the series of the ways with the least median, or the greatest.
func (d *data) best(ways []way, what, place string, size int, greatest bool) *series {
	var best *series
	for _, w := range ways {
		s := d.at(w.contender, w.how, what, place, size)
		if s != nil && (best == nil || s.median() < best.median() != greatest) {
			best = s
		}
	}
	return best
}

package bench

import (
	"fmt"
	"slices"
)

// Result is one figure, in the form that --json prints. Value and Limit are medians
// over the rounds, and Ratio is the median of the rounds' own ratios, Value : Limit.
// The percentiles are of all exchanges of all rounds.
type Result struct {
	What    string  `json:"what"`
	Variant string  `json:"variant,omitempty"`
	Path    string  `json:"path"`
	Size    int     `json:"size"`
	Pin     string  `json:"pin,omitempty"`
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Unit    string  `json:"unit"`
	LimitIs string  `json:"limit_is,omitempty"`
	P50     float64 `json:"p50,omitempty"`
	P99     float64 `json:"p99,omitempty"`
	P999    float64 `json:"p99.9,omitempty"`
	Most    float64 `json:"max,omitempty"`
	Rounds  int     `json:"rounds,omitempty"`
	Count   int     `json:"count,omitempty"` // in a round

	LimitP99  float64 `json:"limit_p99,omitempty"`
	LimitP999 float64 `json:"limit_p99.9,omitempty"`
}

// Units.
const (
	Nanos     = "ns"
	Micros    = "us"
	Rate      = "M/s" // a million messages a second
	Bandwidth = "MB/s"
	Bytes     = "bytes"
)

// unit is how many of what a round gives the result's unit is: latencies are nanoseconds.
func (r *Result) unit() float64 {
	if r.Unit == Micros {
		return 1e3
	}
	return 1
}

// title names what is measured to people.
func (r *Result) title() string {
	s := r.What
	if r.Variant != "" {
		s += ", " + r.Variant
	}
	if r.Size > 0 {
		s += fmt.Sprintf(", %d bytes", r.Size)
	}
	return s
}

// ours are the figures of the rounds.
func (r *Result) ours(s *side) {
	unit := r.unit()
	r.Value = median(s.values) / unit
	if h := s.all; h.h.TotalCount() > 0 {
		r.P50, r.P99, r.P999, r.Most = h.at(50)/unit, h.at(99)/unit, h.at(99.9)/unit, float64(h.h.Max())/unit
	}
}

// median of what a round each gave.
func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}

// ratios are those of the rounds in which there is a limit.
func ratios(ours, limit []float64) []float64 {
	var out []float64
	for i, v := range ours {
		if i < len(limit) && limit[i] > 0 {
			out = append(out, v/limit[i])
		}
	}
	return out
}

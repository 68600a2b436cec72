// Package stat has the few figures that samples are summed up by.
package stat

import (
	"math"
	"slices"
)

// Median is the middle of the values, or the mean of the two in the middle; NaN of none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile is the value below which a part q of the values lies, between two of them where needed.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := min(max(q, 0), 1) * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	part := at - float64(low)
	return sorted[low]*(1-part) + sorted[high]*part
}

// Ratios divides what two measured in the same round; a round in which one of them has nothing, or
// nothing to divide by, has no ratio.
func Ratios(of, to map[int]float64) []float64 {
	var ratios []float64
	for round, v := range of {
		if w, ok := to[round]; ok && w > 0 {
			ratios = append(ratios, v/w)
		}
	}
	slices.Sort(ratios)
	return ratios
}

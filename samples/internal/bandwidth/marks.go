package bandwidth

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"

	"github.com/vmmc-go/vmmc/samples/internal/curve"
)

// most is how many marks of an axis are labelled, about.
const most = 12

// sizeMarks are the sizes that were measured; if there are many, not each has a
// label.
func sizeMarks(points []curve.Point) plot.ConstantTicks {
	step := (len(points) + most - 1) / most
	var out plot.ConstantTicks
	for i, p := range points {
		t := plot.Tick{Value: float64(p.Bytes)}
		if i%step == 0 {
			t.Label = size(p.Bytes)
		}
		out = append(out, t)
	}
	return out
}

func size(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.3g Mi", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.3g Ki", float64(bytes)/(1<<10))
	}
	return fmt.Sprint(bytes)
}

// evenMarks are 1, 2 or 5 times a power of ten apart.
func evenMarks(low, high float64) []plot.Tick {
	if high <= low {
		return nil
	}
	step := math.Pow(10, math.Ceil(math.Log10(high-low)))
	for _, part := range []float64{20, 10, 5, 2} {
		if (high-low)/step*part <= most {
			step /= part
			break
		}
	}
	var out []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		out = append(out, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g", v)})
	}
	return out
}

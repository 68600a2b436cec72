package soak

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
)

// curve is one figure of one process over time.
type curve struct {
	process, figure string
	at              []time.Duration
	values          []float64
}

// trend is the median of the slopes between all points, times the time from the first to the last:
// how much the figure has grown, which no single value can pretend or hide. The points are those
// after a third of the time, when all has happened at least once.
func (c *curve) trend() (grown, median float64, over time.Duration) {
	from := c.at[len(c.at)-1] / 3
	var at []float64
	var values []float64
	for i := range c.at {
		if c.at[i] >= from {
			at, values = append(at, c.at[i].Seconds()), append(values, c.values[i])
		}
	}
	var slopes []float64
	for i := range at {
		for j := range i {
			slopes = append(slopes, (values[i]-values[j])/(at[i]-at[j]))
		}
	}
	if len(slopes) == 0 {
		return 0, 0, 0
	}
	slices.Sort(slopes)
	slices.Sort(values)
	span := at[len(at)-1] - at[0]
	return slopes[len(slopes)/2] * span, values[len(values)/2], time.Duration(span * float64(time.Second))
}

func (c *curve) memory() bool {
	switch c.figure {
	case "descriptors", "goroutines", "threads":
		return false
	}
	return true
}

// most is how much a figure may have grown: what is lost with an operation is lost a thousand times
// in some seconds, in which what is under way at the few looks is a matter of chance. Memory of
// a Go program goes up and down by what the collector leaves, by a part of what it has.
func (c *curve) most(median float64) float64 {
	switch c.figure {
	case "descriptors", "goroutines":
		if c.at[len(c.at)-1] < time.Minute {
			return 10
		}
		return 2.5
	case "threads": // which Go keeps, and makes when many wait at once
		return 6
	}
	return max(2<<20, median/10)
}

// write puts the curves into a directory, as one table and a picture for each figure.
func write(t *testing.T, dir string, curves []*curve) {
	t.Helper()
	check(t, os.MkdirAll(dir, 0o755))
	f, err := os.Create(filepath.Join(dir, "soak.csv"))
	check(t, err)
	w := csv.NewWriter(f)
	check(t, w.Write([]string{"seconds", "process", "figure", "value"}))
	pictures := map[string][]any{}
	for _, c := range curves {
		var xy plotter.XYs
		for i := range c.at {
			check(t, w.Write([]string{strconv.FormatFloat(c.at[i].Seconds(), 'f', 1, 64), c.process, c.figure, strconv.FormatFloat(c.values[i], 'f', 0, 64)}))
			xy = append(xy, plotter.XY{X: c.at[i].Seconds(), Y: c.values[i] / unit(c.figure)})
		}
		pictures[c.figure] = append(pictures[c.figure], c.process, xy)
	}
	w.Flush()
	check(t, w.Error())
	check(t, f.Close())
	for figure, lines := range pictures {
		p := plot.New()
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "soak: "+figure, "seconds", figure, 0
		if unit(figure) > 1 {
			p.Y.Label.Text += " (MiB)"
		}
		check(t, plotutil.AddLines(p, lines...))
		p.Y.Min = 0
		check(t, p.Save(8*vg.Inch, 4*vg.Inch, filepath.Join(dir, "soak-"+figure+".png")))
	}
}

func unit(figure string) float64 {
	switch figure {
	case "rss", "pss", "heap":
		return 1 << 20
	}
	return 1
}

// sketch is a curve in a line of text: ten values from the first to the last.
func (c *curve) sketch() string {
	var b strings.Builder
	for i := range 10 {
		fmt.Fprintf(&b, " %.4g", c.values[i*(len(c.values)-1)/9]/unit(c.figure))
	}
	return b.String()
}

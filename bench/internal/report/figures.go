package report

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// figure is one drawing of a place: a line for each way over the sizes.
type figure struct{ what, title, axis string }

var drawings = []figure{
	{sample.Latency, "One-way latency", "µs"},
	{sample.Bandwidth, "Bandwidth", "MB/s"},
	{sample.Bidir, "Bandwidth, both ways at once", "MB/s"},
}

// draw writes an SVG for each thing in each place that was measured at two sizes or more, deletes
// those of other runs, and returns the names of the new ones.
func (d *data) draw(dir string) (names []string, err error) {
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return nil, err
	}
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return nil, err
		}
	}
	for _, place := range everywhere {
		for _, f := range drawings {
			p, err := d.plot(f, place)
			if err != nil {
				return nil, fmt.Errorf("drawing %s of %s: %w", f.what, place, err)
			}
			if p == nil {
				continue
			}
			name := f.what + "-" + place + ".svg"
			if err := p.Save(24*vg.Centimeter, 14*vg.Centimeter, filepath.Join(dir, name)); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// plot is nil where there is no line to draw.
func (d *data) plot(f figure, place string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s, %s (run %s)", f.title, place, d.run.ID)
	p.X.Label.Text, p.Y.Label.Text = "bytes", f.axis
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(powers(f.what)), plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = font.Length(8)
	p.Legend.XOffs = vg.Centimeter / 2
	lines := 0
	for _, w := range d.ways(f.what, place) {
		points := d.points(f, place, w)
		if len(points) < 2 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		d.style(line, marks, w, lines)
		p.Add(line, marks)
		p.Legend.Add(w.name(), line, marks)
		lines++
	}
	if lines == 0 {
		return nil, nil
	}
	p.Y.Max *= 4 // room for the names
	return p, nil
}

// style draws ours thick and black, what the machine does alone dashed, and peers in colours.
func (d *data) style(line *plotter.Line, marks *plotter.Scatter, w way, n int) {
	c, width := plotutil.Color(n), vg.Points(1)
	switch w.contender {
	case sample.Ours:
		c, width = color.Black, vg.Points(2.5)
	case sample.C, sample.Limit:
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	line.Color, line.Width = c, width
	marks.Color, marks.Shape, marks.Radius = c, plotutil.Shape(n), vg.Points(2.5)
}

func (d *data) points(f figure, place string, w way) (points plotter.XYs) {
	for _, size := range d.sizes(f.what, place) {
		s := d.at(w.contender, w.how, f.what, place, size)
		if s == nil || s.median() <= 0 {
			continue
		}
		y := s.median()
		if f.what == sample.Latency {
			y /= 1e3
		}
		points = append(points, plotter.XY{X: float64(size), Y: y})
	}
	return points
}

// powers are ticks at sizes that have short names.
func powers(what string) (ticks []plot.Tick) {
	least, most := 1<<12, 1<<24
	if what == sample.Latency {
		least, most = 1, 1<<16
	}
	for n := least; n <= most; n *= 4 {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strings.TrimSuffix(byteSize(n), " B")})
	}
	return ticks
}

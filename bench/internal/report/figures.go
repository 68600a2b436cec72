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
	vgdraw "gonum.org/v1/plot/vg/draw"

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
			p, ways, err := d.plot(f, place)
			if err != nil {
				return nil, fmt.Errorf("drawing %s of %s: %w", f.what, place, err)
			}
			if p == nil {
				continue
			}
			name := f.what + "-" + place + ".svg"
			if err := save(p, ways, filepath.Join(dir, name)); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// save draws the names of the lines beside them: there are too many for a corner that has no line.
func save(p *plot.Plot, ways plot.Legend, file string) error {
	c, err := vgdraw.NewFormattedCanvas(28*vg.Centimeter, 14*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	const edge = vg.Centimeter / 3
	all := vgdraw.Crop(vgdraw.New(c), edge, -edge, edge, -edge)
	r := ways.Rectangle(all)
	width := (r.Max.X - r.Min.X) * 1.3 // a viewer's font may be wider
	p.Draw(vgdraw.Crop(all, 0, -width-edge, 0, 0))
	ways.Draw(vgdraw.Crop(all, all.Max.X-all.Min.X-width, 0, 0, 0))
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(w); err != nil {
		_ = w.Close()
		return err
	}
	return w.Close()
}

// plot is nil where there is no line to draw. ways are the names of the lines.
func (d *data) plot(f figure, place string) (p *plot.Plot, ways plot.Legend, err error) {
	p, ways = plot.New(), plot.NewLegend()
	p.Title.Text = fmt.Sprintf("%s, %s (run %s)", f.title, place, d.run.ID)
	p.X.Label.Text, p.Y.Label.Text = "bytes", f.axis
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(powers(f.what)), plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	ways.Top, ways.Left, ways.Padding = true, true, vg.Points(2)
	ways.TextStyle.Font.Size = font.Length(9)
	lines := 0
	for _, w := range d.ways(f.what, place) {
		points := d.points(f, place, w)
		if len(points) < 2 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, ways, err
		}
		d.style(line, marks, w, lines)
		p.Add(line, marks)
		ways.Add(w.name(), line, marks)
		lines++
	}
	if lines == 0 {
		return nil, ways, nil
	}
	return p, ways, nil
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

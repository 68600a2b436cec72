package bandwidth

import (
	"fmt"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG

	"github.com/vmmc-go/vmmc/samples/internal/curve"
)

// checkPlot says whether a curve can be drawn into a file of this name.
func checkPlot(file string) error {
	switch ext := strings.ToLower(filepath.Ext(file)); ext {
	case "", ".svg", ".png":
		if ext == "" && file != "" {
			return fmt.Errorf("%s: the name must end in .svg or .png", file)
		}
		return nil
	}
	return fmt.Errorf("%s: the name must end in .svg or .png", file)
}

// draw draws the bandwidth over the size of a message.
func draw(file, title string, points []curve.Point) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "message size (bytes)"
	p.Y.Label.Text = "bandwidth (MB/s)"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(marks)
	p.Y.Min = 0
	p.Add(plotter.NewGrid())
	pts := make(plotter.XYs, len(points))
	for i, s := range points {
		pts[i] = plotter.XY{X: float64(s.Bytes), Y: s.MBps}
	}
	line, dots, err := plotter.NewLinePoints(pts)
	if err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	line.Width = vg.Points(1.5)
	p.Add(line, dots)
	p.Y.Max *= 1.05
	if len(points) == 1 { // an axis needs some length
		p.X.Min, p.X.Max = p.X.Min/2, p.X.Max*2
	}
	if err := p.Save(7*vg.Inch, 4.5*vg.Inch, file); err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	return nil
}

// most is how many sizes are written at the axis; of more, every second is left out.
const most = 12

// marks are powers of two.
func marks(low, high float64) []plot.Tick {
	var at []int64
	for v := int64(1); float64(v) <= high*1.001; v *= 2 {
		if float64(v) >= low*0.999 {
			at = append(at, v)
		}
	}
	step := 1
	for len(at)/step > most {
		step *= 2
	}
	var out []plot.Tick
	for i, v := range at {
		t := plot.Tick{Value: float64(v)}
		if i%step == 0 {
			t.Label = size(v)
		}
		out = append(out, t)
	}
	return out
}

func size(v int64) string {
	switch {
	case v >= 1<<20:
		return fmt.Sprintf("%dM", v>>20)
	case v >= 1<<10:
		return fmt.Sprintf("%dK", v>>10)
	}
	return fmt.Sprint(v)
}

package bandwidth

import (
	"fmt"
	"image/color"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG

	"github.com/vmmc-go/vmmc/samples/internal/curve"
)

// checkPlot says whether a curve can be drawn into a file of this name.
func checkPlot(file string) error {
	if ext := strings.ToLower(filepath.Ext(file)); file == "" || ext == ".svg" || ext == ".png" {
		return nil
	}
	return fmt.Errorf("%s: the name must end in .svg or .png", file)
}

// draw draws the bandwidth over the size of a message.
func draw(file, title string, points []curve.Point) error {
	p := plot.New()
	p.Title.Text, p.Title.Padding = title, vg.Points(8)
	p.X.Label.Text = "message size (bytes)"
	p.Y.Label.Text = "bandwidth (MB/s)"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, sizeMarks(points)
	p.Y.Tick.Marker = plot.TickerFunc(evenMarks)
	for _, t := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label} {
		t.Font.Variant = "Sans"
	}
	pts := make(plotter.XYs, len(points))
	for i, s := range points {
		pts[i] = plotter.XY{X: float64(s.Bytes), Y: s.MBps}
	}
	line, dots, err := plotter.NewLinePoints(pts)
	if err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	line.Width, line.Color = vg.Points(1.5), color.RGBA{B: 0x99, G: 0x44, A: 0xff}
	dots.Shape, dots.Color = vgdraw.CircleGlyph{}, line.Color
	p.Add(plotter.NewGrid(), line, dots)
	// Room for the dots at the edges, and an axis has some length if there is one alone.
	p.X.Min, p.X.Max = p.X.Min/1.2, p.X.Max*1.2
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.08
	if err := p.Save(7*vg.Inch, 4.5*vg.Inch, file); err != nil {
		return fmt.Errorf("draw %s: %w", file, err)
	}
	return nil
}

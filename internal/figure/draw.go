package figure

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // PNG
	_ "gonum.org/v1/plot/vg/vgsvg" // SVG
)

// colors can be told apart by color-blind readers too.
var colors = []color.RGBA{
	{R: 0x00, G: 0x44, B: 0x99, A: 0xff},
	{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	{R: 0x00, G: 0x8a, B: 0x62, A: 0xff},
	{R: 0xaa, G: 0x4a, B: 0x94, A: 0xff},
	{R: 0x8a, G: 0x70, B: 0x00, A: 0xff},
	{R: 0x33, G: 0x33, B: 0x33, A: 0xff},
}

var glyphs = []vgdraw.GlyphDrawer{
	vgdraw.TriangleGlyph{}, vgdraw.SquareGlyph{}, vgdraw.PyramidGlyph{}, vgdraw.CrossGlyph{}, vgdraw.PlusGlyph{}, vgdraw.BoxGlyph{},
}

// draw writes the figure into a file, whose name says in which form.
func (s *sheet) draw(file string) error {
	p := plot.New()
	p.Title.Text, p.Title.Padding = s.title, vg.Points(8)
	p.X.Label.Text, p.Y.Label.Text = "message size (bytes)", s.y
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(sizeMarks)
	p.Legend.Top, p.Legend.Left = !s.rising, !s.rising // where no line is
	p.Legend.YOffs, p.Legend.XOffs = -vg.Points(8), vg.Points(10)
	if s.rising {
		p.Legend.YOffs, p.Legend.XOffs = vg.Points(10), -vg.Points(10)
	}
	p.Legend.Padding = vg.Points(3)
	p.Legend.ThumbnailWidth = vg.Points(28)
	for _, t := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		t.Font.Variant = "Sans"
	}
	p.Add(plotter.NewGrid())
	for _, l := range s.series {
		line, dots, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return err
		}
		c := colors[l.color%len(colors)]
		line.Color, dots.Color, dots.Shape, dots.Radius = c, c, vgdraw.CircleGlyph{}, vg.Points(2.2)
		switch l.kind {
		case ours:
			line.Width = vg.Points(1.8)
		case limit:
			line.Width, line.Dashes = vg.Points(1.2), []vg.Length{vg.Points(5), vg.Points(3)}
			dots.Shape = vgdraw.RingGlyph{}
		case peer:
			line.Width, dots.Shape = vg.Points(0.7), glyphs[l.color%len(glyphs)]
			dots.Radius = vg.Points(2.6)
		}
		p.Add(line, dots)
		p.Legend.Add(l.name, line, dots)
	}
	s.scale(p)
	return p.Save(8*vg.Inch, 5.5*vg.Inch, file)
}

// scale chooses the axes: powers of ten where values are far apart, with room for
// a legend above the lines.
func (s *sheet) scale(p *plot.Plot) {
	p.X.Min, p.X.Max = p.X.Min/1.3, p.X.Max*1.3
	low, high := math.Inf(1), 0.0
	for _, l := range s.series {
		for _, pt := range l.points {
			low, high = min(low, pt.Y), max(high, pt.Y)
		}
	}
	room := 0.0 // the legend's part of the height
	if !s.rising {
		room = 0.055 * float64(len(s.series))
	}
	if high/low > 30 {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decadeMarks)
		p.Y.Min = low / 1.3
		p.Y.Max = math.Pow(10, math.Log10(p.Y.Min)+math.Log10(high*1.15/p.Y.Min)/(1-min(room, 0.55)))
		return
	}
	p.Y.Min, p.Y.Max = 0, high*1.04/(1-min(room, 0.55))
}

// sizeMarks are powers of two; of many, every second one has a label.
func sizeMarks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for v := 4.0; v <= high; v *= 2 {
		if v < low {
			continue
		}
		t := plot.Tick{Value: v}
		if wide := high/low > 1<<10; !wide || int(math.Log2(v))%2 == 0 {
			t.Label = size(v)
		}
		out = append(out, t)
	}
	return out
}

func size(v float64) string {
	switch {
	case v >= 1<<20:
		return fmt.Sprintf("%.3gMi", v/(1<<20))
	case v >= 1<<10:
		return fmt.Sprintf("%.3gKi", v/(1<<10))
	}
	return fmt.Sprint(v)
}

// decadeMarks are powers of ten, and unlabelled marks between them.
func decadeMarks(low, high float64) []plot.Tick {
	var out []plot.Tick
	few := high/low < 300
	for d := math.Pow(10, math.Floor(math.Log10(low))); d <= high; d *= 10 {
		for m := 1.0; m < 10; m++ {
			v := d * m
			if v < low || v > high {
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || few && (m == 2 || m == 5) {
				t.Label = strconv.FormatFloat(v, 'f', -1, 64)
			}
			out = append(out, t)
		}
	}
	return out
}

// Package figure draws what "vmmc bench" found, as the Myrinet paper's Figures 1
// to 4 have it.
package figure

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/vmmc-go/vmmc/internal/bench"
)

// series is one line of a figure.
type series struct {
	name   string
	points plotter.XYs
	kind   kind
	color  int
}

// kind says how a line is drawn.
type kind int

const (
	ours kind = iota
	limit
	peer
)

// sheet is one figure.
type sheet struct {
	file, title, y string
	rising         bool // the lines go from the bottom left to the top right
	series         []series
}

// Draw writes the figures that the results are enough for into a directory, each as
// SVG and PNG, and returns the names of the files. Files that are there stay: the
// names of the new ones get a number.
func Draw(dir string, rs []bench.Result, peers []Peer) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pictures are for everybody
		return nil, err
	}
	var names []string
	var sheets []sheet
	for _, path := range []string{bench.Local, bench.Remote} {
		d := data{path, rs, peers}
		for _, s := range []sheet{d.limits(), d.latency(), d.bandwidth(), d.overhead()} {
			if len(s.series) > 0 {
				names, sheets = append(names, filepath.Join(dir, s.file+"-"+path)), append(sheets, s)
			}
		}
	}
	number, err := unused(names)
	if err != nil {
		return nil, err
	}
	var files []string
	for i, s := range sheets {
		for _, ext := range extensions {
			file := names[i] + number + ext
			if err := s.draw(file); err != nil {
				return files, fmt.Errorf("draw %s: %w", file, err)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

var extensions = []string{".svg", ".png"}

// unused is what makes all names those of no file: nothing, or "-2" and so on. All
// figures of a run have the same.
func unused(names []string) (number string, err error) {
	for n := 2; ; n++ {
		taken := false
		for _, name := range names {
			for _, ext := range extensions {
				switch _, err := os.Lstat(name + number + ext); {
				case err == nil:
					taken = true
				case !errors.Is(err, os.ErrNotExist):
					return "", err
				}
			}
		}
		if !taken {
			return number, nil
		}
		number = fmt.Sprintf("-%d", n)
	}
}

// data is what there is of one path.
type data struct {
	path  string
	rs    []bench.Result
	peers []Peer
}

// line is the points of one measurement, y of each result; none where y is 0.
func (d *data) line(what, variant string, y func(bench.Result) float64) plotter.XYs {
	var out plotter.XYs
	for _, r := range d.rs {
		if r.Path == d.path && r.What == what && r.Variant == variant && r.Size > 0 {
			if v := y(r); v > 0 {
				out = append(out, plotter.XY{X: float64(r.Size), Y: v})
			}
		}
	}
	slices.SortFunc(out, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return out
}

func value(r bench.Result) float64 { return r.Value }
func least(r bench.Result) float64 { return r.Limit }

// pingPong is the bandwidth that a latency makes: bytes a microsecond.
func pingPong(of func(bench.Result) float64) func(bench.Result) float64 {
	return func(r bench.Result) float64 {
		if of(r) == 0 {
			return 0
		}
		return float64(r.Size) / (of(r) / 1e3)
	}
}

func micros(of func(bench.Result) float64) func(bench.Result) float64 {
	return func(r bench.Result) float64 { return of(r) / 1e3 }
}

// add adds a line if there is one.
func (s *sheet) add(name string, k kind, color int, points plotter.XYs) {
	if len(points) > 0 {
		s.series = append(s.series, series{name, points, k, color})
	}
}

func (d *data) limitName() string {
	if d.path == bench.Remote {
		return "raw TCP"
	}
	return "memmove and a flag"
}

func (d *data) title(n int, what string) string {
	return fmt.Sprintf("Figure %d. %s, %s path", n, what, d.path)
}

func (d *data) limits() sheet {
	s := sheet{file: "figure-1-limits", title: d.title(1, "The machine's limits ("+d.limitName()+")"), y: "bandwidth (MB/s)", rising: true}
	s.add("ping-pong", limit, 0, d.line("latency", "", pingPong(least)))
	s.add("one-way", limit, 1, d.line("bandwidth", "async", least))
	s.add("both ways", limit, 2, d.line("bidir", "stream", least))
	return s
}

// short is the longest message of the figure of latencies.
const short = 4096

func (d *data) latency() sheet {
	s := sheet{file: "figure-2-latency", title: d.title(2, "Latency of short messages"), y: "one way (µs)"}
	add := func(name string, k kind, color int, points plotter.XYs) {
		s.add(name, k, color, slices.DeleteFunc(points, func(p plotter.XY) bool { return p.X > short }))
	}
	add("vmmc", ours, 0, d.line("latency", "", micros(value)))
	add(d.limitName(), limit, 0, d.line("latency", "", micros(least)))
	d.addPeers("latency", 1e-3, add)
	return s
}

func (d *data) bandwidth() sheet {
	s := sheet{file: "figure-3-bandwidth", title: d.title(3, "Bandwidth"), y: "bandwidth (MB/s)", rising: true}
	for i, l := range []struct {
		name, what, variant string
		y                   func(func(bench.Result) float64) func(bench.Result) float64
	}{
		{"ping-pong", "latency", "", pingPong},
		{"one-way", "bandwidth", "sync", same},
		{"one-way, 8 in flight", "bandwidth", "async", same},
		{"both ways", "bidir", "exchange", same},
	} {
		s.add("vmmc "+l.name, ours, i, d.line(l.what, l.variant, l.y(value)))
		if i != 2 { // the limit of both is the same
			s.add(d.limitName()+" "+l.name, limit, i, d.line(l.what, l.variant, l.y(least)))
		}
	}
	d.addPeers("bandwidth", 1, s.add)
	return s
}

func same(of func(bench.Result) float64) func(bench.Result) float64 { return of }

func (d *data) overhead() sheet {
	s := sheet{file: "figure-4-overhead", title: d.title(4, "Overhead of a send"), y: "of the caller's time (µs)", rising: true}
	s.add("synchronous", ours, 0, d.line("overhead", "sync", micros(value)))
	s.add("asynchronous", ours, 1, d.line("overhead", "async", micros(value)))
	s.add(d.limitName(), limit, 0, d.line("overhead", "sync", micros(least)))
	return s
}

func (d *data) addPeers(what string, times float64, add func(string, kind, int, plotter.XYs)) {
	lines := map[string]plotter.XYs{}
	var names []string
	for _, p := range d.peers {
		if p.Path != d.path || p.What != what || p.Size < 1 || p.Value <= 0 {
			continue
		}
		if lines[p.Name] == nil {
			names = append(names, p.Name)
		}
		lines[p.Name] = append(lines[p.Name], plotter.XY{X: float64(p.Size), Y: p.Value * times})
	}
	for i, n := range names {
		add(n, peer, i, lines[n])
	}
}

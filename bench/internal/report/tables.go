package report

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// table is of one thing that several contenders were measured at.
type table struct {
	title, what, unit string
	sizes             []int
	scale             float64
	places            []string
	note              string
}

var (
	everywhere = []string{sample.Local, sample.Loopback, sample.Veth}
	tables     = []table{
		{"Latency", sample.Latency, "µs", []int{4, 64, 1024, 4096}, 1e-3, everywhere, "One way."},
		{"Bandwidth", sample.Bandwidth, "MB/s", bulk, 1, everywhere, ""},
		{"Both ways at once", sample.Bidir, "MB/s", bulk, 1, everywhere, "The total of both ways."},
		{"Gets", sample.Fetch, "µs", []int{4, 64, 1024, 4096}, 1e-3, everywhere, "Round trips."},
		{"Remote procedure calls", sample.RPC, "µs", []int{0}, 1e-3, everywhere, "Round trips of calls that do nothing, each beside what it took turns with."},
		{"Rate of small sends", sample.Rate, "M/s", []int{8}, 1e-6, everywhere, "In millions a second."},
	}
)

// table writes a line for each way of each contender; the ratio is of its figure to ours of the way
// that has no name, or of the first, in the same rounds, at a size that both have.
func (d *data) table(b *bytes.Buffer, t table) {
	fmt.Fprintf(b, "## %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(b, "%s\n\n", t.note)
	}
	none := true
	for _, place := range t.places {
		ways := d.ways(t.what, place)
		sizes := slices.DeleteFunc(slices.Clone(t.sizes), func(n int) bool { return !slices.Contains(d.sizes(t.what, place), n) })
		ways = slices.DeleteFunc(ways, func(w way) bool {
			return !slices.ContainsFunc(sizes, func(n int) bool { return d.at(w.contender, w.how, t.what, place, n) != nil })
		})
		if len(ways) == 0 || len(sizes) == 0 {
			continue
		}
		none = false
		if place == sample.Local && t.unit == "µs" {
			t.unit, t.scale = "ns", 1
		} else if t.unit == "ns" {
			t.unit, t.scale = "µs", 1e-3
		}
		fmt.Fprintf(b, "### %s, %s\n\n| |", t.title, place)
		for _, n := range sizes {
			fmt.Fprintf(b, " %s, %s | : ours |", byteSize(n), t.unit)
		}
		fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---:|---:|", len(sizes)))
		for _, w := range ways {
			d.row(b, t, place, w, sizes, ways)
		}
		b.WriteString("\n")
	}
	if none {
		b.WriteString("Not measured in this run.\n\n")
	}
}

func (d *data) row(b *bytes.Buffer, t table, place string, w way, sizes []int, ways []way) {
	fmt.Fprintf(b, "| %s |", w.name())
	for _, n := range sizes {
		s := d.at(w.contender, w.how, t.what, place, n)
		text, times := short(s.median()*t.scale), "–"
		if s != nil && s.mean {
			text += "*"
		}
		if i := slices.IndexFunc(ways, func(o way) bool { return o.contender == sample.Ours }); i >= 0 && s != nil {
			r := ratio(s, d.at(ways[i].contender, ways[i].how, t.what, place, n))
			if !math.IsNaN(r) {
				times = short(r)
			}
		}
		fmt.Fprintf(b, " %s | %s |", text, times)
	}
	b.WriteString("\n")
}

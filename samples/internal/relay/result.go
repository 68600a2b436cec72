package relay

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/samples/internal/mesh"
	"github.com/vmmc-go/vmmc/samples/internal/report"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// result is a run.
type result struct {
	Program    string           `json:"program"`
	Ranks      []vmmc.ProcessID `json:"ranks"` // the master first
	Seed       uint64           `json:"seed"`
	Iterations int              `json:"iterations"`
	report.Speed
	Checked mesh.Count      `json:"checked"`
	Kind    route.Kind      `json:"kind"`
	Route   []route.Message `json:"pattern"` // as it was recorded
}

// save writes the pattern, with all that is needed to read it.
func (r *result) save(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := report.JSON(f, r); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// shown is how much of a route is printed.
const shown = 12

func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "%s among %d processes, seed %d\n", r.Program, len(r.Ranks), r.Seed)
	t := report.NewTable(w, "words", "bytes", "iterations", "messages", "µs/message", "MB/s")
	t.Row(fmt.Sprint(r.Words), fmt.Sprint(r.Bytes), fmt.Sprint(r.Iterations), fmt.Sprint(r.Messages),
		report.Figure(r.Micros), report.Figure(r.MBps))
	for i, id := range r.Ranks {
		fmt.Fprintf(w, "rank %d: %v\n", i, id)
	}
	var b strings.Builder
	for i, m := range r.Route[:min(len(r.Route), shown)] {
		switch {
		case i == 0:
		case m.Step == r.Route[i-1].Step:
			b.WriteString(" ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(m.String())
	}
	if len(r.Route) > shown {
		b.WriteString(" ...")
	}
	fmt.Fprintf(w, "pattern: %s\nchecked: it is %s\nchecked: %v\n", &b, r.Kind, r.Checked)
}

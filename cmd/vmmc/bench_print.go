package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/vmmc-go/vmmc/internal/bench"
)

// printBench prints what was found, for a person.
func printBench(w io.Writer, rs []bench.Result) error {
	rows := [][]string{{"WHAT", "VARIANT", "PATH", "BYTES", "VALUE", "UNIT", "LIMIT", "RATIO", "P99", "P99.9", "LIMIT IS"}}
	for _, r := range rs {
		rows = append(rows, []string{
			r.What, r.Variant, r.Path, fmt.Sprint(r.Size), number(r.Value), r.Unit,
			number(r.Limit), number(r.Ratio), number(r.P99), number(r.P999), r.LimitIs,
		})
	}
	if err := printTable(w, rows); err != nil {
		return err
	}
	if slices.ContainsFunc(rs, func(r bench.Result) bool { return r.Ratio > 0 }) {
		_, err := fmt.Fprint(w, ratioText)
		return err
	}
	return nil
}

// ratioText explains the table's comparison.
const ratioText = `
LIMIT is what the last column names, measured in turns with vmmc. RATIO is VALUE divided by LIMIT,
the median over the rounds. For a time (ns, us) a RATIO above 1 is slower, for a rate (MB/s) faster.
`

// benchBar shows how far a path's run is.
func benchBar(path string) (progress func(what string, done, of int), end func()) {
	p := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(60))
	var now atomic.Pointer[string] // what is measured; other goroutines draw the bar
	var b *mpb.Bar
	progress = func(what string, done, of int) {
		now.Store(&what)
		if b == nil {
			b = p.AddBar(int64(of),
				mpb.PrependDecorators(decor.Name(path, decor.WC{W: 7, C: decor.DindentRight}),
					decor.Any(func(decor.Statistics) string { return *now.Load() }, decor.WC{W: 10, C: decor.DindentRight})),
				mpb.AppendDecorators(decor.CountersNoUnit("%d / %d")))
		}
		b.SetCurrent(int64(done))
	}
	end = func() {
		if b != nil {
			b.Abort(false)
		}
		p.Wait()
	}
	return progress, end
}

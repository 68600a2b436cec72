package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Table prints rows as they come, below a header; its columns are as wide as their
// names, and at least wide enough for most numbers.
type Table struct {
	w      io.Writer
	widths []int
}

const column = 10

// NewTable prints the header.
func NewTable(w io.Writer, names ...string) *Table {
	t := &Table{w: w}
	for _, n := range names {
		t.widths = append(t.widths, max(column, len(n)))
	}
	t.Row(names...)
	return t
}

// Row prints a row.
func (t *Table) Row(cells ...string) {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		fmt.Fprintf(&b, "%*s", t.widths[i], c)
	}
	fmt.Fprintln(t.w, b.String())
}

// Figure writes a measured number with three digits that mean something.
func Figure(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// JSON prints a value for programs.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/vmmc-go/vmmc/internal/serve"
)

// jsonFlag is the same in all commands that have something to tell a script.
func jsonFlag(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "json", false, "print JSON")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printTable prints rows below a header. An empty cell is "-", so that columns
// can be counted by a script all the same. Names and command lines are other users':
// what would move the cursor or turn the text around is escaped.
func printTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			// Errors come from elsewhere and may have lines and tabs of their own.
			if row[i] = escaped(strings.Join(strings.Fields(cell), " ")); row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// fit is how a table is made to fit a terminal that is narrower: remarks stand below it, columns
// are left out, cells are shortened.
type fit struct {
	// How many leading cells name the row of a remark, which is the last column; 0: there are none.
	remarks int
	spare   []string // columns that may be left out, the first ones first
	// Columns whose cells may be shortened; of paths both ends stay, of others the beginning.
	shorten []string
	least   int // how much of a shortened cell stays; 0: 12
}

// printFitting is printTable on a terminal of so many columns; 0 is no terminal, which gets
// everything.
func printFitting(w io.Writer, rows [][]string, width int, f fit) error {
	if width <= 0 || tableWidth(rows) <= width {
		return printTable(w, rows)
	}
	var below []string
	if f.remarks > 0 {
		last := len(rows[0]) - 1
		for _, row := range rows[1:] {
			if len(row) > last && row[last] != "" {
				below = append(below, wrapped(escaped(strings.Join(row[:f.remarks], " ")+": "+strings.Join(strings.Fields(row[last]), " ")), width)...)
			}
		}
		rows = without(rows, last)
	}
	var out []string
	for _, name := range f.spare {
		if tableWidth(f.shortened(rows, 0)) <= width {
			break
		}
		if i := slices.Index(rows[0], name); i >= 0 {
			rows, out = without(rows, i), append(out, name)
		}
	}
	if err := printTable(w, f.shortened(rows, width)); err != nil {
		return err
	}
	if len(out) > 0 {
		below = append(below, wrapped("left out for want of columns (--json has them): "+strings.Join(out, ", "), width)...)
	}
	for _, l := range below {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}

// shortened is the table with its longest cells that may be shortened as short as the width needs.
func (f *fit) shortened(rows [][]string, width int) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		out[i] = slices.Clone(row)
	}
	var columns, widths, floors []int // a header is not shortened
	for _, name := range f.shorten {
		if i := slices.Index(rows[0], name); i >= 0 {
			widest := 0
			for n, row := range out {
				if n > 0 { // as it is printed, so that nothing grows later
					row[i] = escaped(strings.Join(strings.Fields(row[i]), " "))
				}
				widest = max(widest, utf8.RuneCountInString(row[i]))
			}
			columns, widths = append(columns, i), append(widths, widest)
			floors = append(floors, max(cmp.Or(f.least, 12), utf8.RuneCountInString(rows[0][i])))
		}
	}
	for excess := tableWidth(out) - width; excess > 0; excess-- {
		longest := -1
		for at, w := range widths {
			if w > floors[at] && (longest < 0 || w > widths[longest]) {
				longest = at
			}
		}
		if longest < 0 {
			break
		}
		widths[longest]--
	}
	for at, i := range columns {
		for _, row := range out[1:] {
			row[i] = cut(row[i], widths[at])
		}
	}
	return out
}

// cut shortens a cell: of a path both ends say most, of other text the beginning.
func cut(cell string, width int) string {
	r := []rune(cell)
	if len(r) <= width {
		return cell
	}
	end := 0
	if strings.HasPrefix(cell, "/") && !strings.Contains(cell, " ") {
		end = (width - 1) * 2 / 3
	}
	return string(r[:width-1-end]) + "…" + string(r[len(r)-end:])
}

// tableWidth is how wide printTable makes the rows.
func tableWidth(rows [][]string) (width int) {
	var b strings.Builder
	copied := make([][]string, len(rows))
	for i, row := range rows {
		copied[i] = slices.Clone(row) // printTable changes them
	}
	_ = printTable(&b, copied) // a Builder takes everything
	for line := range strings.Lines(b.String()) {
		width = max(width, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return width
}

// without leaves out a column.
func without(rows [][]string, column int) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		out[i] = slices.Clone(row)
		if column < len(row) {
			out[i] = slices.Delete(out[i], column, column+1)
		}
	}
	return out
}

// wrapped breaks a text between words.
func wrapped(text string, width int) (lines []string) {
	const indent = "  "
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), indent+word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// columns is how wide the terminal is that a command prints to; 0 if it is none.
func columns(c *cobra.Command) int {
	f := serve.OutputFile(c)
	if f == nil || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// escaped has what cannot be printed as Go writes it.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == ' ' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRuneToASCII(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

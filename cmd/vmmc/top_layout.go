package main

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// maxCell is how wide a cell may be: a process names its peer as it likes, and would
// drive other columns out.
const maxCell = 28

// layout has the lines of a table for a terminal of a width, its header first, with the
// column marked that they are sorted by.
func layout(rows []linkRate, by *order, back bool, width int) []string {
	table := rateTable(rows)
	for i, c := range rateColumns {
		if c.by == by.name {
			mark := "↓"
			if back {
				mark = "↑"
			}
			table[0][i] += mark
		}
	}
	widths := make([]int, len(rateColumns))
	for i, c := range rateColumns {
		widths[i] = c.least
		for _, row := range table {
			row[i] = shown(row[i])
			widths[i] = max(widths[i], lipgloss.Width(row[i]))
		}
	}
	kept := fitting(widths, width)
	lines := make([]string, len(table))
	for n, row := range table {
		var b strings.Builder
		for at, i := range kept {
			if at > 0 {
				b.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-lipgloss.Width(row[i]))
			if rateColumns[i].least > 0 {
				b.WriteString(pad + row[i])
			} else {
				b.WriteString(row[i] + pad)
			}
		}
		lines[n] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

// shown is a cell that neither moves the cursor nor takes all the room.
func shown(cell string) string {
	if cell = escaped(cell); cell == "" {
		cell = "-"
	}
	if lipgloss.Width(cell) > maxCell {
		cell = lipgloss.NewStyle().MaxWidth(maxCell-1).Render(cell) + "…"
	}
	return cell
}

// fitting are the columns that there is room for.
func fitting(widths []int, room int) (kept []int) {
	need := -2
	for i, w := range widths {
		kept = append(kept, i)
		need += w + 2
	}
	for need > room {
		last := 0
		for at, i := range kept {
			if rateColumns[i].rank > rateColumns[kept[last]].rank {
				last = at
			}
		}
		if rateColumns[kept[last]].rank == 0 {
			break
		}
		need -= widths[kept[last]] + 2
		kept = append(kept[:last:last], kept[last+1:]...)
	}
	return kept
}

// fill joins words with a separator as long as they fit; those that do not are left out.
func fill(words []string, between string, room int) string {
	line := words[0]
	for _, w := range words[1:] {
		if lipgloss.Width(line+between+w) <= room {
			line += between + w
		}
	}
	return line
}

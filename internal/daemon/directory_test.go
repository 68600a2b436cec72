package daemon

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Pages of the cluster's names have each row once and in order, whatever the lengths of the nodes'
// pages.
func TestMergeNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"n1", "n2", "n3"}
		has := make([][]nodeproto.NameRow, len(nodes))
		var want []nodeproto.NameRow
		for i := range nodes {
			for range rapid.IntRange(0, 12).Draw(t, "rows") {
				row := nodeproto.NameRow{
					Name: fmt.Sprint("q", rapid.IntRange(0, 5).Draw(t, "name")),
					PID:  uint32(10*i + rapid.IntRange(0, 3).Draw(t, "pid")),
				}
				if slices.ContainsFunc(has[i], func(r nodeproto.NameRow) bool { return compareRows(r, row) == 0 }) {
					continue
				}
				has[i] = append(has[i], row)
				row.Node = nodes[i]
				want = append(want, row)
			}
			slices.SortFunc(has[i], compareRows)
		}
		slices.SortFunc(want, compareRows)
		const page = 4
		var got []nodeproto.NameRow
		for more := true; more; {
			lists := make([]nodeproto.NameList, len(nodes))
			for i, rows := range has {
				rest := slices.Clone(rows)
				if len(got) > 0 {
					rest = slices.DeleteFunc(rest, func(r nodeproto.NameRow) bool {
						return compareRows(r, got[len(got)-1]) <= 0
					})
				}
				n := min(len(rest), rapid.IntRange(1, page).Draw(t, "a node's page"))
				lists[i] = nodeproto.NameList{Rows: rest[:n], More: n < len(rest)}
			}
			var rows []nodeproto.NameRow
			if rows, more = mergeNames(nodes, lists, page); len(rows) > page || more && len(rows) == 0 {
				t.Fatalf("a page of %d rows, and more: %v", len(rows), more)
			}
			got = append(got, rows...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

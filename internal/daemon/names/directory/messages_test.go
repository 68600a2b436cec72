package directory

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// quiet waits until nothing is under way.
func quiet() { time.Sleep(time.Minute) }

// TestMessages counts the calls between nodes of each operation in clusters of 10, 100 and 1,000
// nodes, in virtual time. They do not depend on the number, but for the hearing of a machine that
// has started, which asks each other node once. docs/names.md has the table.
func TestMessages(t *testing.T) {
	sizes := []int{10, 100, 1000}
	var rows [][]string
	for _, n := range sizes {
		synctest.Test(t, func(t *testing.T) {
			for i, row := range messages(t, n) {
				if len(rows) <= i {
					rows = append(rows, []string{row[0]})
				}
				rows[i] = append(rows[i], row[1])
			}
		})
	}
	var table strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
		if flat := row[1] == row[2] && row[2] == row[3]; !flat && !strings.HasPrefix(row[0], "first name") {
			t.Errorf("%s: %v calls in clusters of %v nodes", row[0], row[1:], sizes)
		}
	}
	page, err := os.ReadFile(filepath.FromSlash("../../../../docs/names.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/names.md has another table of messages than\n%s", table.String())
	}
}

// messages is TestMessages of one size.
func messages(t *testing.T, size int) (rows [][2]string) {
	s := newSim(t, size, t.TempDir())
	defer s.close()
	// A name, and nodes that are no directory node of it.
	k := Key{Scope: Scope{User: "u"}, Name: "q"}
	set := NewView(s.names).Set(k)
	var others []string
	for _, name := range s.names {
		if !slices.Contains(set, name) {
			others = append(others, name)
		}
	}
	a, b, c := s.node(others[0]), s.node(others[1]), s.node(others[2])
	row := func(what string, f func()) {
		made := s.counted(quiet, f)
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(made)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", made[kind], kind))
		}
		if len(kinds) == 0 {
			kinds = []string{"0"}
		}
		rows = append(rows, [2]string{what, strings.Join(kinds, ", ")})
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var r Registration
	var err error
	row("first name of a cluster whose machines have started", func() {
		r, err = a.publish(t.Context(), "q", 1, false)
		ok(err)
	})
	a.end(r)
	row("publish", func() { r, err = a.publish(t.Context(), "q", 2, false); ok(err) })
	row("publish a name that is taken", func() {
		if _, err := b.publish(t.Context(), "q", 3, false); err == nil {
			t.Error("a second owner")
		}
	})
	row("look-up", func() { _, err := b.lookup(t.Context(), "q", true); ok(err) })
	row("unpublish, or the owner's death", func() { a.end(r) })
	row("look-up that waits for a minute, and the publish", func() {
		done := make(chan error)
		go func() { _, err := b.lookup(t.Context(), "q", true); done <- err }()
		quiet()
		r, err = a.publish(t.Context(), "q", 4, false)
		ok(err)
		ok(<-done)
	})
	row("look-up of a name whose owner's end was not told", func() {
		a.mu.Lock()
		clear(a.own)
		clear(a.has)
		a.mu.Unlock()
		if _, err := b.lookup(t.Context(), "q", false); err == nil {
			t.Error("an owner that has ended")
		}
	})
	r, err = c.publish(t.Context(), "q", 5, false)
	ok(err)
	row("restart of a directory node's daemon", func() { s.start(set[0], s.kill(set[0])) })
	row("restart of the owner's daemon", func() { s.start(c.name, s.kill(c.name)) })
	if got, err := b.lookup(t.Context(), "q", true); err != nil || got.Owner != r.Owner {
		t.Errorf("after the restarts: %v, %v", got, err)
	}
	return rows
}

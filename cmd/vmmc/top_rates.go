package main

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/ask"
)

// linkRate is a link with what went over it a second, between two looks.
type linkRate struct {
	ask.Link
	MessageRate float64 `json:"messages_per_second"`
	ByteRate    float64 `json:"bytes_per_second"` // of messages, updates and gets
	NoteRate    float64 `json:"notifications_per_second"`
	GetRate     float64 `json:"gets_per_second"`
	AtomicRate  float64 `json:"atomics_per_second"`
}

// linkKey names a link for as long as it lasts: its slot may be another's afterwards.
type linkKey struct {
	node  string
	pid   uint32
	place uint32
	begun time.Time
}

// rates remembers the look before.
type rates struct{ last map[linkKey]ask.Link }

// update gives the rates since the look before. A link that was not there then has none
// yet.
func (r *rates) update(links []ask.Link) []linkRate {
	seen := make(map[linkKey]ask.Link, len(links))
	rows := make([]linkRate, 0, len(links))
	for _, l := range links {
		k := linkKey{l.Node, l.PID, l.Place, l.Begun}
		seen[k] = l
		row := linkRate{Link: l}
		if was, ok := r.last[k]; ok && l.Read > was.Read {
			per := func(now, before uint64) float64 {
				if now < before { // a lost addition, or a process that says what it likes
					return 0
				}
				return float64(now-before) / (l.Read - was.Read).Seconds()
			}
			row.MessageRate = per(l.Messages, was.Messages)
			row.ByteRate = per(l.Bytes+l.GetBytes, was.Bytes+was.GetBytes)
			row.NoteRate = per(l.Notes, was.Notes)
			row.GetRate = per(l.Gets, was.Gets)
			row.AtomicRate = per(l.Atomics, was.Atomics)
		}
		rows = append(rows, row)
	}
	r.last = seen
	return rows
}

// order is one that rows can be in.
type order struct {
	name string
	key  string
	less func(a, b linkRate) int
}

var orders = []order{
	{"bytes", "b", func(a, b linkRate) int { return cmp.Compare(b.ByteRate, a.ByteRate) }},
	{"messages", "m", func(a, b linkRate) int { return cmp.Compare(b.MessageRate, a.MessageRate) }},
	{"notes", "n", func(a, b linkRate) int { return cmp.Compare(b.NoteRate, a.NoteRate) }},
	{"gets", "g", func(a, b linkRate) int { return cmp.Compare(b.GetRate, a.GetRate) }},
	{"atomics", "a", func(a, b linkRate) int { return cmp.Compare(b.AtomicRate, a.AtomicRate) }},
	{"idle", "i", func(a, b linkRate) int { return cmp.Compare(b.Idle, a.Idle) }},
	{"process", "p", func(linkRate, linkRate) int { return 0 }},
}

func sortKeys() (names []string) {
	for _, o := range orders {
		names = append(names, o.name)
	}
	return names
}

func sortNames() string { return strings.Join(sortKeys(), ", ") }

func orderNamed(name string) *order {
	for i := range orders {
		if orders[i].name == name || orders[i].key == name {
			return &orders[i]
		}
	}
	return nil
}

// sort has rows that are equal in the order of their nodes and processes, so that they
// do not jump about.
func (o *order) sort(rows []linkRate, reverse bool) {
	slices.SortStableFunc(rows, func(a, b linkRate) int {
		c := o.less(a, b)
		if c == 0 {
			c = cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Place, b.Place))
		}
		if reverse {
			c = -c
		}
		return c
	})
}

// rateColumns are those of the rates, once and live. Live, numbers are at the right of a
// width that they seldom need more than, so that columns do not jump about, and where
// the terminal is too narrow, the column with the highest rank goes first.
var rateColumns = []struct {
	name  string
	by    string // the order that it shows
	rank  int    // 0: it stays
	least int    // its width, of a number; 0: it is none
	cell  func(linkRate) string
}{
	{"NODE", "process", 3, 0, func(l linkRate) string { return l.Node }},
	{"PID", "", 0, 7, func(l linkRate) string { return strconv.FormatUint(uint64(l.PID), 10) }},
	{"PROGRAM", "", 7, 0, func(l linkRate) string { return l.Program }},
	{"ROLE", "", 5, 0, func(l linkRate) string { return l.Role }},
	{"PEER", "", 0, 0, func(l linkRate) string { return peerOf(l.Link) }},
	{"PATH", "", 6, 0, func(l linkRate) string { return l.PathName() }},
	{"MSG/S", "messages", 0, 7, func(l linkRate) string { return perSecond(l.MessageRate) }},
	{"BYTES/S", "bytes", 1, 9, func(l linkRate) string { return sized(uint64(l.ByteRate)) }},
	{"NOTES/S", "notes", 8, 8, func(l linkRate) string { return perSecond(l.NoteRate) }},
	{"GETS/S", "gets", 9, 7, func(l linkRate) string { return perSecond(l.GetRate) }},
	{"ATOMICS/S", "atomics", 10, 10, func(l linkRate) string { return perSecond(l.AtomicRate) }},
	{"STATE", "", 4, 0, func(l linkRate) string { return l.State }},
	{"IDLE", "idle", 2, 5, func(l linkRate) string { return l.Idle.Round(time.Second).String() }},
	{"MESSAGES", "", 11, 10, func(l linkRate) string { return strconv.FormatUint(l.Messages, 10) }},
	{"RESUMED", "", 12, 7, func(l linkRate) string { return strconv.FormatUint(l.Resumes, 10) }},
	{"USER", "", 13, 0, func(l linkRate) string { return l.User }},
}

// rateTable has all columns, below their names.
func rateTable(rows []linkRate) (table [][]string) {
	line := func(cell func(i int) string) {
		var out []string
		for i := range rateColumns {
			out = append(out, cell(i))
		}
		table = append(table, out)
	}
	line(func(i int) string { return rateColumns[i].name })
	for _, r := range rows {
		line(func(i int) string { return rateColumns[i].cell(r) })
	}
	return table
}

// perSecond is short at any size.
func perSecond(f float64) string {
	switch {
	case f >= 1e9:
		return strconv.FormatFloat(f/1e9, 'f', 2, 64) + "G"
	case f >= 1e6:
		return strconv.FormatFloat(f/1e6, 'f', 2, 64) + "M"
	case f >= 1e4:
		return strconv.FormatFloat(f/1e3, 'f', 1, 64) + "k"
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

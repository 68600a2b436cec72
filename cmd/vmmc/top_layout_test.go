package main

import (
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/vmmc-go/vmmc/internal/ask"
)

// Whatever the size of the terminal, every line fits, and what is left out is left out
// as a whole.
func TestTopFits(t *testing.T) {
	rows := []linkRate{
		{Link: ask.Link{Node: "n1", PID: 1000001, Role: "imports", PeerNode: "n2", PeerPID: 3, Path: "mapped", State: "established", User: "ann", Messages: 1 << 40}, MessageRate: 2.5e6, ByteRate: 3e9},
		{Link: ask.Link{Node: "n2", PID: 3, Role: "exports", PeerNode: strings.Repeat("é", 60) + "\x1b[2J", PeerPID: 1, Path: "stream", User: "", Idle: time.Hour}},
		{Link: ask.Link{Node: "n2", PID: 4, Role: "exports", PeerNode: "n1", PeerPID: 1, Path: "stream"}},
	}
	for w := 1; w < 220; w++ {
		for h := 1; h < 12; h++ {
			m := &topModel{by: orderNamed("bytes"), rows: rows, looked: true, width: w, height: h}
			lines := m.lines()
			if len(lines) > h {
				t.Fatalf("%d lines on %d", len(lines), h)
			}
			for _, l := range lines {
				if lipgloss.Width(l) > w || strings.Contains(l, "\x1b[2J") {
					t.Fatalf("%dx%d: %q", h, w, l)
				}
			}
		}
	}
	head := func(w int) string {
		return strings.Join(strings.Fields(layout(rows[:1], orderNamed("bytes"), true, w)[0]), " ")
	}
	for w, want := range map[int]string{
		20:  "PID PEER MSG/S",
		40:  "PID PEER MSG/S BYTES/S↑ IDLE",
		80:  "NODE PID ROLE PEER PATH MSG/S BYTES/S↑ STATE IDLE",
		200: "NODE PID PROGRAM ROLE PEER PATH MSG/S BYTES/S↑ NOTES/S GETS/S ATOMICS/S STATE IDLE MESSAGES RESUMED USER",
	} {
		if got := head(w); got != want {
			t.Errorf("at %d there are %q, want %q", w, got, want)
		}
	}
	m := &topModel{by: orderNamed("bytes"), rows: rows, looked: true, width: 80, height: 4}
	if got := strings.Join(m.lines(), "\n"); !strings.Contains(got, "3 links (1 of 3 ends), 2.50M msg/s, 2.8GiB/s, by bytes") {
		t.Errorf("not all ends of links are shown, and that is not said: %s", got)
	}
}

// A link of which both ends are seen is one link.
func TestTopCountsLinks(t *testing.T) {
	end := func(role, node string, pid uint32, peer string, peerPID uint32) linkRate {
		return linkRate{Link: ask.Link{Role: role, Node: node, PID: pid, PeerNode: peer, PeerPID: peerPID}}
	}
	there, back := end("imports", "n1", 1, "n2", 2), end("exports", "n2", 2, "n1", 1)
	other := end("imports", "n2", 2, "n1", 1)
	for _, c := range []struct {
		rows []linkRate
		want string
	}{
		{nil, "0 links"},
		{[]linkRate{there}, "1 link"},
		{[]linkRate{back}, "1 link"},
		{[]linkRate{there, back}, "1 link"},
		{[]linkRate{back, other, there}, "2 links"},
		{[]linkRate{end("exports", "n2", 2, "n1", 3), there}, "2 links"},
	} {
		m := &topModel{by: orderNamed("bytes"), rows: c.rows, looked: true, width: 80, height: 20}
		if got := m.title(18); !strings.HasPrefix(got, "vmmc top: "+c.want+",") {
			t.Errorf("%d ends: %q, want %s", len(c.rows), got, c.want)
		}
	}
}

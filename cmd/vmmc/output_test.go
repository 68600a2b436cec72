package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/ask"
)

func TestTableShowsNoControls(t *testing.T) {
	var b bytes.Buffer
	if err := printTable(&b, [][]string{{"NAME", "COMMAND"}, {"a\x1b]0;x\ab", "é\u202e \u009b31m\nc"}, {"", `\x1b`}}); err != nil {
		t.Fatal(err)
	}
	want := "NAME          COMMAND\n" + `a\x1b]0;x\ab  é\u202e \u009b31m c` + "\n-             \\x1b\n"
	if b.String() != want {
		t.Errorf("%q, wanted %q", b.String(), want)
	}
}

// A table that is wider than the terminal has fewer columns, and its remarks below.
func TestTableFits(t *testing.T) {
	n, size, load := uint32(12), uint64(3<<30), 17.25
	nodes := []nodeInfo{
		{Name: "n1", Control: "10.0.0.101:7411", State: stateUp, Path: "socket /run/vmmc/node.sock"},
		{
			Name: "n2", Control: "10.0.0.102:7411", State: stateUp, RTT: 123_456_789, Processes: &n, Sessions: &n, Exported: &size, Load: &load,
			Uptime: 1e15, Version: "0.1.0", Path: "TLS 10.0.0.102:7411", Differs: `its hosts file has node "n2" in place 1, this node's in place 2, é\u202e`,
		},
		{Name: "n3", Control: "10.0.0.103:7411", State: stateUnreachable, Error: "refused\n" + strings.Repeat("x ", 100)},
	}
	for _, width := range []int{60, 80, 100, 120, 200, 1000} {
		var b bytes.Buffer
		if err := printFitting(&b, nodeRows(nodes), width, nodesFit); err != nil {
			t.Fatal(err)
		}
		for _, l := range strings.Split(b.String(), "\n") {
			if len([]rune(l)) > width {
				t.Errorf("at %d columns a line has %d: %s", width, len([]rune(l)), l)
			}
		}
		for _, says := range []string{"NAME", "CONTROL", "STATE", "unreachable", "in place 1", "refused x x"} {
			if !strings.Contains(b.String(), says) {
				t.Errorf("at %d columns it lacks %q:\n%s", width, says, b.String())
			}
		}
		if left := strings.Contains(b.String(), "left out"); left != (width < 150) || strings.Contains(b.String(), "TLS ") == left {
			t.Errorf("at %d columns:\n%s", width, b.String())
		}
	}
}

// Each list fits a terminal with the names that clusters have. It is whole where there is no
// terminal.
func TestListsFit(t *testing.T) {
	seven, now := 7, time.Now()
	long := "/usr/local/bin/simulate --steps=1000000 --input=/srv/data/particles-2026.bin --verbose"
	processes := []ask.Process{
		{Node: "node17", Session: "simulation", PID: 16000123, RealPID: 4194303, Group: 16000123, State: "running", Begun: now.Add(-48 * time.Hour), Command: "hostname"},
		{Node: "n1", Session: "test", PID: 1, RealPID: 1, Group: 1, State: "exited", Status: &seven, Begun: now, Command: long},
	}
	missing := append(slices.Clone(processes), ask.Process{
		Node: "n2", Session: "test", PID: 1000001, RealPID: 77, Group: 1000001, State: "killed", Signal: 15, Begun: now, Command: "sh -c 'a\tb'",
		Output: 1 << 30, Missing: 1 << 20, Why: "no space left on device, and another reason that is long enough to need a second line",
	})
	sessions := []ask.Session{
		{Node: "node17", Name: "simulation", User: "someuser", Drive: "K:", Base: "/home/someuser/projects/simulation/2026", Output: "/home/someuser/projects/simulation/2026/out", Processes: 1234},
		{Node: "n2", Name: "test", User: "root", Drive: "-", Base: "/tmp", Output: "/tmp/out", Error: "its supervisor does not answer: " + strings.Repeat("why ", 30)},
	}
	links := []ask.Link{
		{
			Node: "node17", PID: 16000123, User: "someuser", Role: "imports", PeerNode: "node18", PeerPID: 17000123, Path: "stream", Secret: true, State: "retransmitting",
			Messages: 123_456_789, Bytes: 98_765_432_100, Notes: 4321, Gets: 99999, GetBytes: 1 << 33, Atomics: 77, Acks: 1 << 20, Resumes: 3, Resent: 17,
			Idle: 3 * time.Hour, Begun: now.Add(-48 * time.Hour), Program: "simulate-particles", PeerProgram: "collector",
		},
		{Node: "n1", PID: 1, User: "root", Role: "exports", PeerNode: "n2", PeerPID: 1000001, Path: "mapped", State: "established", Begun: now, Program: "a", PeerProgram: "b"},
	}
	cluster := &clusterState{dir: "/home/someuser/.local/state/vmmc/cluster"}
	for _, n := range []string{"n1", "n2"} {
		cluster.Nodes = append(cluster.Nodes, nodeState{Name: n, Address: "127.0.0.1:44123", Socket: cluster.dir + "/" + n + ".sock", Process: process{PID: 4194303}})
	}
	for _, c := range []struct {
		name  string
		print func(w io.Writer, width int) error
		all   []string // at every width
		wide  []string // where there is room
	}{
		{
			"ps", func(w io.Writer, width int) error { return printProcesses(w, width, processes, false) },
			[]string{"NODE", "SESSION", "PID", "STATE", "STATUS", "COMMAND", "node17", "simulation", "16000123", "hostname", "/usr/local/b"},
			[]string{"REALPID", long},
		},
		{
			"ps with output that is lost", func(w io.Writer, width int) error { return printProcesses(w, width, missing, false) },
			[]string{"COMMAND", "1048576 bytes of 1073741824", "second line"},
			[]string{"OUTPUT NOT KEPT", "REALPID", long},
		},
		{
			"session ls", func(w io.Writer, width int) error { return printSessions(w, width, sessions, false) },
			[]string{"NODE", "SESSION", "BASE", "OUTPUT", "PROCESSES", "simulation", "/home", "2026", "/out", "1234", "does not answer: why why"},
			[]string{"DRIVE", sessions[0].Output},
		},
		{
			"link ls", func(w io.Writer, width int) error { return printLinks(w, width, links, false) },
			[]string{"NODE", "PID", "ROLE", "PEER", "BYTES", "PROGRAM", "PEERPROGRAM", "node18/17000123", "98765432100", "simulat", "collect"},
			[]string{"RESENT", "someuser", "retransmitting"},
		},
		{"cluster ls", func(w io.Writer, width int) error { _ = cluster.print(w, width, false); return nil }, // some are dead
			[]string{"NAME", "STATE", "SOCKET", "dead", "/n1.sock", "/n2.sock"}, []string{"PID", "4194303", cluster.Nodes[0].Socket}},
	} {
		for _, width := range []int{0, 80, 100, 120, 400} {
			var b bytes.Buffer
			if err := c.print(&b, width); err != nil {
				t.Fatal(err)
			}
			want := c.all
			if width == 0 || width == 400 {
				want = append(slices.Clone(want), c.wide...)
			}
			for _, says := range want {
				if !strings.Contains(b.String(), says) {
					t.Errorf("%s at %d columns lacks %q:\n%s", c.name, width, says, b.String())
				}
			}
			for l := range strings.Lines(b.String()) {
				if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); width > 0 && n > width {
					t.Errorf("%s at %d columns has a line of %d:\n%s", c.name, width, n, b.String())
				}
			}
			if cuts := strings.Contains(b.String(), "…") || strings.Contains(b.String(), "left out"); cuts && (width == 0 || width == 400) {
				t.Errorf("%s at %d columns is cut:\n%s", c.name, width, b.String())
			}
			if testing.Verbose() && (width == 80 || width == 120) {
				t.Logf("%s at %d columns:\n%s", c.name, width, b.String())
			}
		}
	}
}

package main

import (
	"bytes"
	"strings"
	"testing"
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
		if err := printFitting(&b, nodeRows(nodes), width, "PATH", "VERSION", "UPTIME", "EXPORTED", "SESSIONS", "PROCESSES", "LOAD", "RTT"); err != nil {
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

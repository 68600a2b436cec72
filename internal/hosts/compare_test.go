package hosts_test

import (
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

// Two lists are the same, differ, or give one block of logical pids to two nodes.
func TestDifference(t *testing.T) {
	const three = "a h:1\nb h:2\nc h:3 d:3\n"
	tests := []struct {
		name, its string
		how       string // "": none
		conflict  bool
	}{
		{"the same", three, "", false},
		{"the same in other words", "# nodes\nA  h:1 h:1\n\nb h:2\nC h:3 d:3 # fast\n-\n", "", false},
		{"another order", "b h:2\na h:1\nc h:3 d:3\n", `node "b" in place 1, this node's in place 2`, true},
		{"the last first", "c h:3 d:3\na h:1\nb h:2\n", `node "c" in place 1, this node's in place 3`, true},
		{"moved up", "a h:1\nc h:3 d:3\n", `node "c" in place 2, this node's in place 3`, true},
		{"moved down", "-\na h:1\nb h:2\nc h:3 d:3\n", `node "a" in place 2, this node's in place 1`, true},
		{"another node in a place", "a h:1\nx h:9\nc h:3 d:3\n", `node "x" in place 2, this node's has node "b" there`, true},
		{"alone", "c h:3\n", `node "c" in place 1, this node's in place 3`, true},
		{"one more", three + "d h:4\n", `has node "d", this node's has not`, false},
		{"one less", "a h:1\nb h:2\n", `lacks node "c"`, false},
		{"one less, its place kept", "a h:1\n-\nc h:3 d:3\n", `lacks node "b"`, false},
		{"another address", "a h:1\nb h:9\nc h:3 d:3\n", `node "b" at "h:9", this node's at "h:2"`, false},
		{"another data address", "a h:1\nb h:2\nc h:3\n", `data address "h:3" of node "c", this node's "d:3"`, false},
		{"none", "", `lacks node "a"`, false},
	}
	own := parsed(t, three)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			its := parsed(t, tt.its)
			how, conflict := hosts.Difference(own, its)
			if (how == "") != (tt.how == "") || !strings.Contains(how, tt.how) || conflict != tt.conflict {
				t.Errorf("%q, conflict %v; want %q, %v", how, conflict, tt.how, tt.conflict)
			}
			if same := hosts.Digest(own) == hosts.Digest(its); same != (tt.how == "") {
				t.Errorf("the digests are the same: %v", same)
			}
		})
	}
}

func parsed(t *testing.T, text string) []hosts.Host {
	t.Helper()
	list, err := hosts.Parse(strings.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

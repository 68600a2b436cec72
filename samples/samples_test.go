package samples

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// All tests share the nodes and the programs.
func TestSamples(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "nodes need Linux")
	_, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "needs the go command to build the programs")
	l := newLab(t)
	t.Run("Tables", l.tables)
	t.Run("JSON", l.json)
	t.Run("Nodes", l.nodes)
	t.Run("Plots", l.plots)
	t.Run("Patterns", l.patterns)
	t.Run("Misuse", l.misuse)
	t.Run("Failures", l.failures)
	t.Run("KilledPeer", l.killedPeer)
	t.Run("KilledMaster", l.killedMaster)
	t.Run("Interrupt", l.interrupt)
}

// runs are the manual's command lines, with what is to be found in a line each of
// the table, and the messages that are moved and checked.
var runs = []struct {
	line     string
	table    string
	messages []int
}{
	{"spawn", "level node process", nil},
	{"spawn 4", "level node process", nil},
	{"latency 16 50", "words bytes iterations one way µs", []int{100}},
	{"all2all pairwise 3 10 40", "words bytes messages µs/message MB/s", []int{240}},
	{"all2all random 4 1 30", "words bytes messages µs/message MB/s", []int{360}},
	{"PPBandwidth 20 1 64", "words bytes MB/s µs/message", []int{40, 40, 40, 40, 40, 40, 40}},
	{"OnewayBandwidth 5000 1 2", "words bytes MB/s µs/message", []int{5000, 5000}}, // in several bursts
	{"OnewayBandwidth 10 3 30000", "words bytes MB/s µs/message", []int{10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}},
	{"BidirBandwidth 20 1024 4096", "words bytes MB/s µs/message", []int{40, 40, 40}},
	{"FetchBandwidth 20 1 8", "words bytes MB/s µs/message", []int{20, 20, 20, 20}},
	{"RandomChain 3 7 21", "words bytes iterations messages", nil},
	{"RandomOne2All 4 1 10", "words bytes iterations messages", nil},
	{"RandomAll2All 4 100 10", "words bytes iterations messages", []int{120}},
}

// A person gets a table and is told that the data was right.
func (l *lab) tables(t *testing.T) {
	for _, r := range runs {
		name, args := split(r.line)
		status, out, errs := l.run(t, "n1 n2 n3", name, args...)
		if status != 0 || errs != "" {
			t.Errorf("%s: status %d\n%s", r.line, status, errs)
			continue
		}
		if flat := strings.Join(strings.Fields(out), " "); !strings.Contains(flat, r.table) {
			t.Errorf("%s: no header %q in\n%s", r.line, r.table, out)
		}
		if name != "spawn" && !strings.Contains(out, "all as they were sent") {
			t.Errorf("%s: does not say that the data is right:\n%s", r.line, out)
		}
		if name != "spawn" && !strings.Contains(out, "seed ") {
			t.Errorf("%s: does not say the seed:\n%s", r.line, out)
		}
	}
}

// A program gets the same as an array of objects; every message was checked.
func (l *lab) json(t *testing.T) {
	for _, r := range runs {
		name, args := split(r.line)
		points := l.objects(t, "n1 n2 n3", name, args...)
		if name == "spawn" {
			continue // in nodes
		}
		if r.messages != nil && len(points) != len(r.messages) {
			t.Errorf("%s: %d objects, wanted %d", r.line, len(points), len(r.messages))
			continue
		}
		for i, p := range points {
			messages, checked := p["messages"].(float64), p["checked"].(map[string]any)
			if r.messages != nil && messages != float64(r.messages[i]) {
				t.Errorf("%s: object %d has %v messages, wanted %d", r.line, i, messages, r.messages[i])
			}
			if checked["messages"] != messages || checked["words"] != messages*p["words"].(float64) {
				t.Errorf("%s: of %v messages of %v words were checked: %v", r.line, messages, p["words"], checked)
			}
			if p["program"] != name || p["mb_per_s"].(float64) <= 0 || p["us_per_message"].(float64) <= 0 {
				t.Errorf("%s: object %d is %v", r.line, i, p)
			}
		}
	}
}

func split(line string) (string, []string) {
	f := strings.Fields(line)
	return f[0], f[1:]
}

// on is the node of a process in an object.
func on(v any) string { return fmt.Sprint(v.(map[string]any)["Node"]) }

// The nodes are those of VMMCHOSTS, in its order, from the master's on, and again
// from the start.
func (l *lab) nodes(t *testing.T) {
	for _, c := range []struct{ hosts, line, want string }{
		{"", "spawn 3", "n1 n2 n3 n1"},
		{"n3 n1", "spawn 3", "n1 n3 n1 n3"},
		{"n3 n1 n2", "RandomChain 5 1 4", "n1 n2 n3 n1 n2"},
		{"n2,n3", "all2all pairwise 4 1 2", "n1 n2 n3 n2"},
		{"n1", "RandomAll2All 3 1 2", "n1 n1 n1"},
		{"n1", "PPBandwidth 5 1 1", "n1 n1"},
		{"n2 n1 n3", "latency 1 5", "n1 n3"},
	} {
		name, args := split(c.line)
		objects := l.objects(t, c.hosts, name, args...)
		var got []string
		switch first := objects[0]; {
		case name == "spawn":
			for _, o := range objects {
				got = append(got, on(o["process"]))
			}
		case first["ranks"] != nil:
			for _, r := range first["ranks"].([]any) {
				got = append(got, on(r))
			}
		default:
			got = []string{on(first["master"]), on(first["peer"])}
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%s with VMMCHOSTS=%q ran on %s, wanted %s", c.line, c.hosts, g, c.want)
		}
	}
}

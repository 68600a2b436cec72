//go:build linux && (amd64 || arm64)

package samples

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// newCLab builds the programs in C and starts nodes for them. With vmmcx they use more than the
// calls of the manual: memory that is mapped, and the texts of errors.
func newCLab(t *testing.T, vmmcx bool) *lab {
	t.Helper()
	library := testutil.CLibrary(t)
	include, err := filepath.Abs(filepath.Join("..", "c", "include"))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{bin: t.TempDir() + "/"}
	build := exec.CommandContext(t.Context(), "make", "-s", "-j2", "-C", "c", "BIN="+l.bin,
		"CFLAGS=-O2", "VMMC_CFLAGS=-I"+include,
		"VMMC_LIBS=-L"+library+" -lvmmc -Wl,-rpath,"+library)
	if vmmcx {
		build.Args = append(build.Args, "CPPFLAGS=-DUSE_VMMCX")
	}
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make -C samples/c: %v\n%s", err, out)
	}
	l.socket = up(t, 3)
	return l
}

// The programs in C have the command lines, the output and the checks of those in Go.
func TestCSamples(t *testing.T) {
	l := newCLab(t, true)
	t.Run("Tutorial", l.tutorial)
	t.Run("SBL", l.sbl)
	t.Run("Tables", l.tables)
	t.Run("JSON", l.json)
	t.Run("Nodes", l.nodes)
	t.Run("Plots", l.plotsInC)
	t.Run("Patterns", l.patterns)
	t.Run("Misuse", l.misuse)
	t.Run("Failures", l.failures)
	t.Run("KilledPeer", l.killedPeer)
	t.Run("KilledMaster", l.killedMaster)
	t.Run("Interrupt", l.interrupt)
	t.Run("OtherPeers", l.otherPeers)
}

// By the calls of the manual alone, with memory of malloc.
func TestCSamplesOfTheManual(t *testing.T) {
	newCLab(t, false).tables(t)
}

func (l *lab) tutorial(t *testing.T) {
	status, out, errs := l.run(t, "n1", "tutorial")
	if status != 0 || out != "in my memory: hello from the other process :-)\n" {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

func (l *lab) sbl(t *testing.T) {
	for _, hosts := range []string{"n1 n2", "n1"} {
		status, out, errs := l.run(t, hosts, "messages")
		if status != 0 || out != "4096 words and 16 letters, all as they were sent\n" {
			t.Errorf("on %s: status %d\n%s%s", hosts, status, out, errs)
		}
	}
}

// Programs in C draw SVG alone.
func (l *lab) plotsInC(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "a.svg")
	if status, _, errs := l.run(t, "n1 n2", "PPBandwidth", "5", "1", "1024", "--plot", svg); status != 0 {
		t.Fatalf("status %d\n%s", status, errs)
	}
	b, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<svg", "message size (bytes)", "bandwidth (MB/s)", "PPBandwidth, n1 to n2", ">4 Ki<", "</svg>",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
	if n := strings.Count(string(b), "<circle"); n != 11 {
		t.Errorf("the picture has %d points, measured were 11", n)
	}
	// One point, and no power of two.
	if status, _, errs := l.run(t, "n1 n2", "FetchBandwidth", "5", "5", "5", "--plot", svg); status != 0 {
		t.Fatalf("status %d\n%s", status, errs)
	}
}

// A master in C leads peers in Go: both draw the same routes and contents from a seed, and each
// checks what the other has sent.
func (l *lab) otherPeers(t *testing.T) {
	inGo := t.TempDir() + "/"
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", inGo, "./...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, line := range []string{
		"latency 16 50", "all2all random 3 10 40", "PPBandwidth 20 1 16", "OnewayBandwidth 5000 1 2",
		"BidirBandwidth 20 1024 2048", "FetchBandwidth 20 1 8", "RandomChain 3 7 21",
		"RandomOne2All 4 1 10", "RandomAll2All 3 100 10", "spawn 2",
	} {
		name, args := split(line)
		t.Setenv("SAMPLE_PEER", inGo+name)
		for _, p := range l.objects(t, "n1 n2 n3", name, args...) {
			if name == "spawn" {
				continue
			}
			if checked := p["checked"].(map[string]any); checked["messages"] != p["messages"] {
				t.Errorf("%s: of %v messages were checked: %v", line, p["messages"], checked)
			}
		}
	}
	t.Setenv("SAMPLE_PEER", "")
	l.sameRoute(t)
}

// A chain is walked in the order in which it was drawn, so it can be compared with what Go draws.
func (l *lab) sameRoute(t *testing.T) {
	for _, seed := range []uint64{5, 1 << 40} {
		want := route.Draw(route.Chain, seed, 3, 50)
		var got []route.Message
		for _, p := range l.objects(t, "n1", "RandomChain", "3", "1", "50", "--seed", strconv.FormatUint(seed, 10)) {
			for _, m := range p["pattern"].([]any) {
				f := m.(map[string]any)
				got = append(got, route.Message{
					Step: int(f["step"].(float64)), From: int(f["from"].(float64)), To: int(f["to"].(float64)),
				})
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with seed %d C has drawn %v, Go draws %v", seed, got, want)
		}
	}
}

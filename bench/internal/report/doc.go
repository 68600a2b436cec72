package report

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// Names of the files in the directory of documents.
const (
	document = "performance.md"
	figures  = "performance" // a directory
)

// Write writes the document of a run with its figures. All numbers in it are the run's.
func Write(run *sample.Run, docs string) error {
	if len(run.Samples) == 0 {
		return fmt.Errorf("run %s has no samples", run.ID)
	}
	d := newData(run)
	if err := os.MkdirAll(filepath.Join(docs, figures), 0o755); err != nil { //nolint:gosec // a document for everybody
		return err
	}
	drawn, err := d.draw(filepath.Join(docs, figures))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, document), d.document(drawn), 0o644) //nolint:gosec // a document for everybody
}

const head = `# Performance

This page is written by ` + "`go run .`" + ` in [bench](../bench): all figures are of one run, and none is of
another. Why the library is built as it is, and what was measured for that, is in
[decisions](decisions/README.md).

`

const method = `## How it was measured

In each round every contender runs once, in an order that is drawn anew from the seed. Ours, the C
programs that a bar compares it with, and UCX's puts in shared memory run one after another, in an
order that is drawn too. Other peers run minutes apart. A figure is the median over the rounds. A
ratio is the median of the ratios within each round. Latency is one way: half of a round trip whose
far end answers with as many bytes, its median in a round, or its mean where the contender reports
no other (marked *). Each end has a processor. UCX, libfabric and MPI poll; gRPC-Go and net/rpc
sleep. MB are 1,000,000 bytes.

- *local*: both ends share memory; gRPC-Go and net/rpc use a unix socket there.
- *loopback*: TCP on 127.0.0.1. *veth*: TCP between two network namespaces, MTU 1500. MPI and UCX
  are kept from shared memory in both. The namespaces have Reno's congestion control for all. With
  BBR, which paces by timers, every transfer over TCP has one of two speeds, the slower of them a
  quarter of the other.
- *C* is a program without a library (` + "`bench/c/raw.c`" + `). Its one-way transfers over TCP
  alternate with ours in short rounds of one measurement; the ratio is the median over those rounds.
  *vmmc's limit* is what ` + "`vmmc bench`" + ` measures of the machine itself beside each of its
  figures.
- *C acknowledging* and *a first one's packets and pages alone* (` + "`bench/c/floor.c`" + `, and in Go
  ` + "`internal/baseline/introduction.go`" + `) are what any link over TCP and any first import needs: headers,
  acknowledgements and shared memory; packets, pages and descriptors. *C acknowledging* has the
  settings of a link to a near end, two megabytes in flight at most. It writes several messages by
  one call, which *TCP, spin* and *TCP, yield* do not. No bar is about them.
- Puts of UCX and MPI are complete at the far end when its last byte is seen there; that end does
  not read the others. The bandwidth of libfabric is of a ping-pong, because its test has no other.
- Bandwidth of MPI and UCX is with 64 operations or more in flight, of gRPC-Go and net/rpc with 8.

`

func (d *data) document(drawn []string) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	r := d.run
	fmt.Fprintf(&b, "Run `%s`, %s to %s, %s, seed %d.\n\n", r.ID, r.Began.Format("2006-01-02 15:04"), r.Ended.Format("15:04 MST"),
		counted(r.Rounds(), "round"), r.Seed)
	b.WriteString("## Machine and versions\n\n| | |\n|---|---|\n")
	for _, m := range []map[string]string{r.Machine, r.Versions} {
		for _, name := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Compare(strings.ToLower(a), strings.ToLower(b)) }) {
			fmt.Fprintf(&b, "| %s | %s |\n", name, m[name])
		}
	}
	b.WriteString("\n## What has to hold\n\n| what | where | bar | measured | holds |\n|---|---|---|---|---|\n")
	for _, p := range d.bars() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n",
			p.what, p.where, p.bound, strings.Join(p.measured, ", "), p.holds())
	}
	b.WriteString("\nAllocations on the hot paths are not measured here; tests assert that there are none.\n\n")
	for _, t := range tables {
		d.table(&b, t)
	}
	if len(drawn) > 0 {
		b.WriteString("## Figures\n\n")
		for _, f := range drawn {
			fmt.Fprintf(&b, "![%s](%s/%s)\n\n",
				strings.TrimSuffix(strings.ReplaceAll(f, "-", ", "), ".svg"), figures, f)
		}
	}
	b.WriteString(method)
	if len(r.Failures) > 0 {
		b.WriteString("## What failed\n\n| contender | rounds | first reason |\n|---|---|---|\n")
		for _, f := range d.failures() {
			fmt.Fprintf(&b, "| %s | %d | %s |\n", f.name, f.rounds, f.why)
		}
		b.WriteString("\n")
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type failed struct {
	name, why string
	rounds    int
}

func (d *data) failures() []failed {
	by := map[string]*failed{}
	for _, f := range d.run.Failures {
		if by[f.Name] == nil {
			why := strings.Join(strings.Fields(f.Why), " ")
			if len(why) > 160 {
				why = strings.ToValidUTF8(why[:160], "") + "…"
			}
			by[f.Name] = &failed{name: f.Name, why: strings.ReplaceAll(why, "|", "\\|")}
		}
		by[f.Name].rounds++
	}
	var all []failed
	for _, name := range slices.Sorted(maps.Keys(by)) {
		all = append(all, *by[name])
	}
	return all
}

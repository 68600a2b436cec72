//go:build linux

package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// What becomes of links is in driver.log.
func TestEventsOfLinksAreLogged(t *testing.T) {
	dir := t.TempDir()
	n, err := daemon.Start(daemon.Config{Name: "n1", Socket: filepath.Join(dir, "s"), Logs: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	says := func(what ...string) {
		t.Helper()
		for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
			b, err := os.ReadFile(filepath.Join(dir, "driver.log"))
			for line := range strings.Lines(string(b)) {
				all := true
				for _, w := range what {
					all = all && strings.Contains(line, w)
				}
				if all {
					return
				}
			}
			if time.Now().After(end) {
				t.Fatalf("no line says %q (%v):\n%s", what, err, b)
			}
		}
	}
	p, q := open(t, n), open(t, n)
	e, err := p.Export(1, make([]byte, 4096))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Import(t.Context(), p.Node(), p.PID(), 1); err != nil {
		t.Fatal(err)
	}
	says("a link was introduced", "importer=n1/2", "exporter=n1/1")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	says("an import was revoked", "process=n1/2", "peer=n1/1", "role=imports")
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	says("a link is down", "process=n1/1", "peer=n1/2", "role=exports")

	// A process cannot write other lines there.
	r := newRaw(t, n, 9, nil)
	tell := func(e nodeproto.LinkEvent) error {
		_, err := r.Call(t.Context(), nodeproto.ReportEvent, e, nil, nil)
		return err
	}
	check(t, "an unknown event", tell(nodeproto.LinkEvent{Kind: "node is down"}), code.BadArg,
		"unknown event")
	if err := tell(nodeproto.LinkEvent{Kind: nodeproto.LinkResumed, State: "retransmitting"}); err != nil {
		t.Fatal(err)
	}
	says("a link was resumed", "role=exports", "state=retransmitting")
	if err := tell(nodeproto.LinkEvent{
		Kind: nodeproto.LinkFailed, Peer: nodeproto.ProcessID{Node: strings.Repeat("x", 9000)},
		Why: "a\nb level=INFO msg=c",
	}); err != nil {
		t.Fatal(err)
	}
	says("a link has failed", `"a\nb level=INFO msg=c"`)

	// Nor so many that those of others are lost.
	before, _ := os.ReadFile(filepath.Join(dir, "driver.log"))
	begun := time.Now()
	for range 1000 {
		if err := tell(nodeproto.LinkEvent{Kind: nodeproto.LinkDown, Why: "flood"}); err != nil {
			t.Fatal(err)
		}
	}
	most := 256 + 1 + int(time.Since(begun)/(100*time.Millisecond))
	if n.Close(); true { // all is written
		after, _ := os.ReadFile(filepath.Join(dir, "driver.log"))
		if got := strings.Count(string(after[len(before):]), "why=flood"); got < 200 || got > most {
			t.Errorf("%d lines of a process that says 1000 at once, want at most %d", got, most)
		}
	}
}

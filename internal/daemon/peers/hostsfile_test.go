//go:build linux

package peers

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// configured is the view of a node before it serves, whose hosts file has the text.
func configured(t *testing.T, list []hosts.Host, text string) (*Cluster, error) {
	t.Helper()
	ids, err := cert.Ephemeral("test", "a")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "vmmc-hosts.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	logs := &systemlog.Logs{}
	logs.Open(slog.New(slog.DiscardHandler), "")
	c := New(Config{
		Node: "a", HostsFile: file, Certified: true, ClientTLS: ids["a"].ClientTLS, Logs: logs,
	})
	return c, c.Begin(list, nil)
}

// A node that is not in the list may ask while this one still starts, and has the
// file looked at.
func TestANodeIsWelcomeWhileThisOneStarts(t *testing.T) {
	list := []hosts.Host{{Name: "a", Control: "h:1", Data: "h:1"}}
	c, err := configured(t, list, "a h:1\nb h:2\n")
	if err != nil {
		t.Fatal(err)
	}
	if b := (cert.Peer{Kind: cert.Node, Name: "b"}); !c.IsMember(b) {
		t.Error("b is in the file, and was refused")
	}
	if o := (cert.Peer{Kind: cert.Node, Name: "c"}); c.IsMember(o) {
		t.Error("c is not in the file, and was let in")
	}
	// The places were this node's from the start, not only from that look on.
	if err := os.WriteFile(c.cfg.HostsFile, []byte("-\na h:1\nb h:2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Reload()
	if got := c.roster.Load(); got.place != 0 || len(got.peers) != 1 {
		t.Errorf("a moved to place %d", got.place)
	}
}

// All names go to each process that joins, in one packet.
func TestVeryManyNodes(t *testing.T) {
	list := []hosts.Host{{Name: "a", Control: "h:1", Data: "h:1"}}
	for _, name := range manyNames(2000, "node") {
		list = append(list, hosts.Host{Name: name, Control: "h:1", Data: "h:1"})
	}
	if _, err := configured(t, list, ""); err != nil {
		t.Errorf("2000 nodes with short names: %v", err)
	}
	list = list[:1]
	for _, name := range manyNames(2000, strings.Repeat("n", 60)) {
		list = append(list, hosts.Host{Name: name, Control: "h:1", Data: "h:1"})
	}
	_, err := configured(t, list, "")
	if err == nil || !strings.Contains(err.Error(), "shorter names") || len(err.Error()) > 1000 {
		t.Errorf("2000 nodes with long names: %v", err)
	}
	check := code.New(code.NoSuchNode, "the nodes are %s", names(list)).Error()
	if len(check) > 4000 || !strings.Contains(check, "2001 in all") {
		t.Errorf("an error names them so: %s", check)
	}
}

func manyNames(n int, prefix string) (all []string) {
	for i := range n {
		letter := func(digits int) string { return string(rune('a' + digits%10)) }
		all = append(all, prefix+letter(i)+letter(i/10)+letter(i/100)+letter(i/1000))
	}
	return all
}

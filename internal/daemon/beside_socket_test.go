//go:build linux

package daemon_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// An orderly stop leaves beside the socket what the next daemon has a use for, and no more.
func TestFilesBesideTheSocketOfAStoppedDaemon(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	ids, err := cert.Ephemeral("test", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	const recent, old = 5 * time.Second, 5 * time.Minute
	type lines []map[string]any
	one := func(pid int) nodeproto.ProcessID {
		return nodeproto.ProcessID{Node: "a", PID: uint32(pid), Incarnation: 7}
	}
	ended := func(ago time.Duration) map[string]any {
		return map[string]any{"Process": one(3), "Ended": true, "At": time.Now().Add(-ago).Unix()}
	}
	live := map[string]any{"Process": one(4), "Real": os.Getpid()}
	dead := map[string]any{"Process": one(5), "Real": gone.Process.Pid, "Born": 1}
	all := []string{"a.sock.bell", "a.sock.lock", "a.sock.roll"}
	for _, c := range []struct {
		what   string
		roll   lines // of a daemon that was killed
		others bool  // the node has other nodes
		want   []string
	}{
		{"no process", nil, false, []string{"a.sock.lock"}},
		{"no process, other nodes", nil, true, []string{"a.sock.lock"}},
		{"a process that lives", lines{live}, false, all},
		{"a process that lives, other nodes", lines{live}, true, all},
		{"one that lives beside one that has ended", lines{ended(old), live, dead}, false, all},
		{"a process that has just died", lines{dead}, false, []string{"a.sock.lock"}},
		{
			"a process that has just died, other nodes",
			lines{dead},
			true,
			[]string{"a.sock.lock", "a.sock.roll"},
		},
		{"an end that no other node can ask about", lines{ended(recent)}, false, []string{"a.sock.lock"}},
		{
			"an end that other nodes may ask about",
			lines{ended(recent)},
			true,
			[]string{"a.sock.lock", "a.sock.roll"},
		},
		{"an end of long ago", lines{ended(old)}, true, []string{"a.sock.lock"}},
		{
			"an end without its time",
			lines{{"Process": one(3), "Ended": true}},
			true,
			[]string{"a.sock.lock", "a.sock.roll"},
		},
		{
			"ends of long ago and of now",
			lines{ended(old), ended(recent), ended(old)},
			true,
			[]string{"a.sock.lock", "a.sock.roll"},
		},
		{
			"a process of another node", lines{
				{"Process": nodeproto.ProcessID{Node: "x", PID: 9, Incarnation: 7}, "Real": os.Getpid()},
			}, true, []string{"a.sock.lock"},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			cfg := daemon.Config{Name: "a", Socket: filepath.Join(dir, "a.sock")}
			if c.others {
				cfg.Identity = ids["a"]
				for _, name := range []string{"a", "b"} {
					addr := freePort(t)
					cfg.Hosts = append(cfg.Hosts, hosts.Host{Name: name, Control: addr, Data: addr})
				}
			}
			var b []byte
			for _, l := range c.roll {
				line, err := json.Marshal(l)
				if err != nil {
					t.Fatal(err)
				}
				b = append(append(b, line...), '\n')
			}
			// All that a daemon leaves that is killed.
			for name, content := range map[string][]byte{
				"a.sock": nil, "a.sock.bell": {1, 0, 0, 0}, "a.sock.lock": []byte("256       \n"),
				"a.sock.roll": b, "a.sock.roll.new": b,
			} {
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the one after the next leaves no more, nor less
				startNode(t, cfg).Close()
				if got := namesIn(t, dir); !slices.Equal(got, c.want) {
					t.Errorf("beside the socket there are %q, want %q", got, c.want)
				}
			}
			n := startNode(t, cfg)
			if _, r := joined(t, n); r.Process.PID%1_000_000 <= 256 {
				t.Errorf("process %v has a pid that the daemons before may have given", r.Process)
			}
		})
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

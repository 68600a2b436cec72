package vmmc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// three gives a node of a cluster whose hosts file lists n1, n2 and n3. The
// others do not run.
func three(t *testing.T) *daemon.Node {
	t.Helper()
	ids, err := cert.Ephemeral("test", "n2")
	if err != nil {
		t.Fatal(err)
	}
	hs := []hosts.Host{{Name: "n1", Control: "127.0.0.1:1"}, {Name: "n2", Control: "127.0.0.1:0"}, {Name: "n3", Control: "127.0.0.1:2"}}
	n, err := daemon.Start(daemon.Config{Name: "n2", Socket: filepath.Join(t.TempDir(), "node"), Hosts: hs, Identity: ids["n2"]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// failsWith fails the test unless err has the code and says all of what.
func failsWith(t testing.TB, what string, err error, want vmmc.Code, says ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}

func names(ns []vmmc.NodeID) string {
	var s []string
	for _, n := range ns {
		s = append(s, n.String())
	}
	return strings.Join(s, " ")
}

func TestSessionHosts(t *testing.T) {
	n := three(t)
	for env, want := range map[string]string{
		"":              "n1 n2 n3",
		" ,\t ":         "n1 n2 n3",
		"n3 n1":         "n3 n1",
		" n3,n2 , n3\t": "n3 n2",
		"n2":            "n2",
	} {
		t.Setenv("VMMCHOSTS", env)
		p := open(t, n)
		t.Setenv("VMMCHOSTS", "n1") // it was read already
		got, err := p.SessionHosts()
		if err != nil || names(got) != want {
			t.Errorf("VMMCHOSTS=%q: %v (%v), want %s", env, got, err, want)
			continue
		}
		got[0] = vmmc.NodeID{}
		if again, _ := p.SessionHosts(); names(again) != want {
			t.Errorf("VMMCHOSTS=%q: the caller changed the list to %v", env, again)
		}
	}
}

func TestSessionHostsUnknown(t *testing.T) {
	t.Setenv("VMMCHOSTS", "n1 node 3")
	p := open(t, three(t)) // a bad VMMCHOSTS fails only SessionHosts
	got, err := p.SessionHosts()
	failsWith(t, "unknown nodes", err, vmmc.ErrNoSuchNode, "n1 n2 n3", `"node"`, `"3"`, "VMMCHOSTS")
	if got != nil {
		t.Errorf("%v beside an error", got)
	}
	if all := p.AllHosts(); names(all) != "n1 n2 n3" {
		t.Errorf("all nodes: %v", all)
	}
}

func TestNodesAndNames(t *testing.T) {
	p := open(t, three(t))
	for _, n := range p.AllHosts() {
		name, err := p.NodeToName(n)
		if err != nil || name != n.String() {
			t.Errorf("name of %v: %q, %v", n, name, err)
		}
		if back, err := p.NameToNode(name); err != nil || back != n {
			t.Errorf("node %q: %v, %v", name, back, err)
		}
	}
	var other vmmc.NodeID
	_ = other.UnmarshalText([]byte("n4"))
	for _, n := range []vmmc.NodeID{{}, other} {
		if _, err := p.NodeToName(n); err == nil || slices.Contains(p.AllHosts(), n) {
			t.Errorf("%q is a node", n)
		} else {
			failsWith(t, "name of no node", err, vmmc.ErrNoSuchNode, "n1 n2 n3")
		}
	}
	if host, err := os.Hostname(); err != nil || p.HostName() != host {
		t.Errorf("host name %q, want %q (%v)", p.HostName(), host, err)
	}
}

// A session's name that messages would change, and so make another session's, is refused in words,
// wherever it is from.
func TestSessionNames(t *testing.T) {
	n := three(t)
	for name, good := range map[string]bool{
		"": true, "job": true, "a b\nc/d%": true, "é": true, "日本": true, "\ufffd": true, `\ufffd`: true, "\x01\x7f": true,
		"\xff": false, "a\xfe": false, "\xc3": false, "\xed\xa0\x80": false, "é\x80": false, "a\x00b": false,
	} {
		for from, open := range map[string]func() (*vmmc.Process, error){
			"the option": func() (*vmmc.Process, error) {
				return vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()), vmmc.WithSession(name))
			},
			"the environment": func() (*vmmc.Process, error) {
				t.Setenv("VMMCSESSION", name)
				return vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket()))
			},
		} {
			if strings.Contains(name, "\x00") && from == "the environment" {
				continue // no environment has it
			}
			p, err := open()
			if good {
				if err != nil {
					t.Errorf("%q by %s: %v", name, from, err)
					continue
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				continue
			}
			if err == nil {
				_ = p.Close()
			}
			failsWith(t, fmt.Sprintf("%q by %s", name, from), err, vmmc.ErrBadArg, "not valid UTF-8", "VMMCSESSION", strconv.Quote(name))
		}
	}
}

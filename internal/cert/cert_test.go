package cert

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func clock(t time.Time) func() time.Time { return func() time.Time { return t } }

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	if err := Init(dir, "c"); err != nil {
		t.Fatal(err)
	}
	node, user := filepath.Join(t.TempDir(), "deep", "node"), filepath.Join(t.TempDir(), "user")
	if err := IssueNode(dir, "a", node); err != nil {
		t.Fatal(err)
	}
	if err := IssueUser(dir, "ann/x y%z@é", user); err != nil {
		t.Fatal(err)
	}
	for out, want := range map[string]Peer{
		node: {"c", Node, "a"},
		user: {"c", User, "ann/x y%z@é"},
	} {
		id, err := Load(out)
		if err != nil {
			t.Fatal(err)
		}
		if id.Peer != want {
			t.Errorf("loaded %v, wanted %v", id.Peer, want)
		}
		entries, err := os.ReadDir(out)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != 3 {
			t.Errorf("found %v, wanted three files and no temporary ones", entries)
		}
	}
	if err := IssueNode(dir, "b", node); err != nil {
		t.Fatalf("replace an identity: %v", err)
	}
	if id, err := Load(node); err != nil || id.Name != "b" {
		t.Errorf("after replacing, Load gave %v, %v", id, err)
	}

	if runtime.GOOS == "windows" {
		t.Skip("files have no modes here")
	}
	for path, want := range map[string]fs.FileMode{
		dir:                           0o700 | fs.ModeDir,
		filepath.Join(dir, caKeyFile): 0o600,
		filepath.Join(dir, caFile):    0o644,
		node:                          0o700 | fs.ModeDir,
		filepath.Join(node, keyFile):  0o600,
		filepath.Join(node, certFile): 0o644,
		filepath.Join(user, keyFile):  0o600,
		filepath.Join(node, caFile):   0o644,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, wanted %v", path, info.Mode(), want)
		}
	}
}

func TestInitOverwritesNothing(t *testing.T) {
	for _, file := range []string{caFile, caKeyFile} {
		t.Run(file, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			err := Init(dir, "c")
			if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v does not say that %s exists", err, path)
			}
			if data, _ := os.ReadFile(path); string(data) != "mine" {
				t.Errorf("the file was overwritten with %q", data)
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 1 {
				t.Errorf("left %v behind", entries)
			}
		})
	}
}

func TestFileErrors(t *testing.T) {
	now := time.Now()
	base := t.TempDir()
	at := func(elem ...string) string { return filepath.Join(append([]string{base}, elem...)...) }
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, ca := range []string{"ca1", "ca2"} {
		if err := Init(at(ca), ca); err != nil {
			t.Fatal(err)
		}
		if err := IssueNode(at(ca), "a", at(ca, "a")); err != nil {
			t.Fatal(err)
		}
	}

	tests := []struct {
		name string
		do   func() error
		want []string
	}{
		{"cluster with a space", func() error { return Init(at("x"), "a b") }, []string{`cluster "a b"`, "character ' '"}},
		{"cluster with two dots", func() error { return Init(at("x"), "a..b") }, []string{"0 characters between dots"}},
		{"cluster ends in a dot", func() error { return Init(at("x"), "a.") }, []string{"0 characters between dots"}},
		{"cluster with a long label", func() error { return Init(at("x"), strings.Repeat("a", 64)) }, []string{"64 characters"}},
		{"bad node", func() error { return IssueNode(at("ca1"), "a/b", at("x")) }, []string{`node "a/b"`, "character '/'"}},
		{"empty user", func() error { return IssueUser(at("ca1"), "", at("x")) }, []string{"wanted 1 to 256"}},
		{"user with a line break", func() error { return IssueUser(at("ca1"), "a\nb", at("x")) }, []string{"cannot be printed"}},
		{"user not UTF-8", func() error { return IssueUser(at("ca1"), "a\xff", at("x")) }, []string{"not UTF-8"}},
		{"no authority", func() error { return IssueNode(at("none"), "a", at("x")) }, []string{at("none", caFile)}},
		{"an identity is no authority", func() error { return IssueNode(at("ca1", "a"), "b", at("x")) }, []string{at("ca1", "a", caKeyFile)}},
		{"authority expired", func() error {
			return issueTo(at("ca1"), Node, "a", at("x"), clock(now.AddDate(11, 0, 0)))
		}, []string{"was good until", "issue all identities again"}},
		{"key of another authority", func() error {
			write(at("ca1", caKeyFile), read(at("ca2", caKeyFile)))
			return IssueNode(at("ca1"), "a", at("x"))
		}, []string{at("ca1", caKeyFile), "is not the key of"}},
		{"identity expired", func() error {
			_, err := load(at("ca1", "a"), clock(now.AddDate(1, 0, 1)))
			return err
		}, []string{at("ca1", "a", certFile), `node "a" of cluster "ca1"`, "is good from " + now.UTC().Format("2006"), "issue a new one"}},
		{"identity not good yet", func() error {
			_, err := load(at("ca1", "a"), clock(now.Add(-2*clockSlack)))
			return err
		}, []string{"is good from", "set the clock"}},
		{"key of another identity", func() error {
			write(at("ca2", "a", keyFile), read(at("ca1", "a", keyFile)))
			_, err := Load(at("ca2", "a"))
			return err
		}, []string{at("ca2", "a", certFile), keyFile}},
		{"another authority's certificate", func() error {
			write(at("ca1", "a", caFile), read(at("ca2", "a", caFile)))
			_, err := Load(at("ca1", "a"))
			return err
		}, []string{`node "a" of cluster "ca1"`, `cluster "ca2"`, "same authority?"}},
		{"no PEM", func() error {
			write(at("ca1", "a", caFile), "hello")
			_, err := Load(at("ca1", "a"))
			return err
		}, []string{at("ca1", "a", caFile), "PEM"}},
		{"two PEM blocks", func() error {
			write(at("ca1", "a", caFile), read(at("ca1", caFile))+read(at("ca2", caFile)))
			_, err := Load(at("ca1", "a"))
			return err
		}, []string{at("ca1", "a", caFile), "more than one"}},
		{"an identity for an authority", func() error {
			write(at("ca1", "a", caFile), read(at("ca1", "a", certFile)))
			_, err := Load(at("ca1", "a"))
			return err
		}, []string{at("ca1", "a", caFile), "not that of a cluster's authority"}},
		{"nothing there", func() error { _, err := Load(at("none")); return err }, []string{at("none", caFile)}},
	}
	for _, tt := range tests { // in order: later ones spoil files
		err := tt.do()
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q lacks %q", tt.name, err, want)
			}
		}
	}
	if _, err := os.Stat(at("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a call that failed made its directory")
	}
}

// An identity must not outlive its authority, or verification fails for a reason
// that its own dates do not show.
func TestIssueNearTheAuthoritysEnd(t *testing.T) {
	start := time.Now()
	a, err := newAuthority("c", clock(start))
	if err != nil {
		t.Fatal(err)
	}
	a.now = clock(start.AddDate(authorityYears, 0, -1))
	id, err := a.issue(Node, "a")
	if err != nil {
		t.Fatal(err)
	}
	if !id.pair.Leaf.NotAfter.Equal(a.cert.NotAfter) {
		t.Errorf("good until %v, its authority until %v", id.pair.Leaf.NotAfter, a.cert.NotAfter)
	}
}

// Names that pass the checks must also pass crypto/x509, which reads the URI with
// rules of its own, when it parses and when it verifies.
func TestNamesInCertificates(t *testing.T) {
	for _, cluster := range []string{"C", "A-b_1.x", "1.2.3.4", "_", "a-.-b", strings.Repeat("a", 63)} {
		a, err := newAuthority(cluster, time.Now)
		if err != nil {
			t.Errorf("cluster %q: %v", cluster, err)
			continue
		}
		for _, p := range []Peer{
			{cluster, Node, "_"},
			{cluster, Node, "A-b_1..x."},
			{cluster, Node, strings.Repeat("n", 64)},
			{cluster, User, ".."},
			{cluster, User, "DOM\\ann/x y%z?#[]é"},
			{cluster, User, strings.Repeat("é", 128)},
		} {
			id, err := a.issue(p.Kind, p.Name)
			if err != nil {
				t.Errorf("%v: %v", p, err)
				continue
			}
			if got, err := id.verifyLeaf(id.pair.Leaf, x509.ExtKeyUsageServerAuth); err != nil || got != spelled(p) {
				t.Errorf("%v reads as %v, %v", p, got, err)
			}
		}
	}
}

func TestEphemeralErrors(t *testing.T) {
	for _, tt := range []struct {
		cluster string
		nodes   []string
	}{{"", nil}, {"c", []string{"a", "a"}}, {"c", []string{"a b"}}} {
		if ids, err := Ephemeral(tt.cluster, tt.nodes...); err == nil {
			t.Errorf("Ephemeral(%q, %q) = %v", tt.cluster, tt.nodes, ids)
		}
	}
}

// spelled is a peer as all nodes spell it: a node's name has no case.
func spelled(p Peer) Peer {
	if p.Kind == Node {
		p.Name = strings.ToLower(p.Name)
	}
	return p
}

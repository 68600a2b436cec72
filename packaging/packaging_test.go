// Package packaging has no code: its tests hold the files against systemd's own
// tools.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// tool runs one of systemd's, and wants nothing to be said against the files.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	testutil.Require(t, err == nil, "there is no "+name+"; install systemd")
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestUnit(t *testing.T) {
	b, err := os.ReadFile("vmmcd.service")
	if err != nil {
		t.Fatal(err)
	}
	// The daemon need not be installed for the unit to be right.
	unit := filepath.Join(t.TempDir(), "vmmcd.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(b), "/usr/bin/vmmcd", "/bin/true")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := tool(t, "systemd-analyze", "verify", unit); strings.Contains(out, "vmmcd.service") {
		t.Errorf("it says:\n%s", out)
	}
}

// install puts the two files below an empty root.
func install(t *testing.T) string {
	t.Helper()
	testutil.Require(t, os.Getuid() == 0, "making accounts and owners, below an empty directory, needs root")
	root := t.TempDir()
	for from, to := range map[string]string{"vmmc.sysusers": "usr/lib/sysusers.d", "vmmc.tmpfiles": "usr/lib/tmpfiles.d"} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(root, to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, to, "vmmc.conf"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestAccountAndDirectories(t *testing.T) {
	root := install(t)
	tool(t, "systemd-sysusers", "--root="+root, "vmmc.conf")
	if b, err := os.ReadFile(filepath.Join(root, "etc", "passwd")); err != nil || !strings.Contains(string(b), ":VMMC node daemon:/var/lib/vmmc:/usr/sbin/nologin\n") {
		t.Errorf("the accounts are %q, %v", b, err)
	}
	tool(t, "systemd-tmpfiles", "--root="+root, "--create", "vmmc.conf")
	for name, mode := range map[string]os.FileMode{"var/lib/vmmc": 0o711, "var/log/vmmc": 0o750, "etc/vmmc/certs": 0o750, "run/vmmc": 0o755} {
		if s, err := os.Stat(filepath.Join(root, name)); err != nil || !s.IsDir() || s.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	for _, name := range []string{"logs", "vmmc-hosts.txt", "certs", "run"} {
		if to, err := os.Readlink(filepath.Join(root, "var/lib/vmmc", name)); err != nil || !filepath.IsAbs(to) {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
}

// The commands of README.md, with all that they install below an empty root, put the programs,
// their manual pages and the shell's completion where the table says.
func TestInstallByHand(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "making accounts and owners, below an empty directory, needs root")
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(string(b), "\n```\n")
	commands, _, ok := strings.Cut(commands, "\n```\n")
	if !ok {
		t.Fatal("README.md has no commands")
	}
	root := t.TempDir()
	for _, dir := range []string{"usr/bin", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	commands = strings.NewReplacer(
		" /usr/", " "+root+"/usr/", ">/usr/", ">"+root+"/usr/", " /etc/", " "+root+"/etc/",
		"systemd-sysusers", "systemd-sysusers --root="+root,
		"systemd-tmpfiles", "systemd-tmpfiles --root="+root,
		"\nsystemctl daemon-reload", "", // the machine's own
	).Replace(commands)
	c := exec.CommandContext(t.Context(), "sh", "-ec", commands)
	c.Dir = ".."
	c.Env = append(os.Environ(), "PATH="+filepath.Join(root, "usr/bin")+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, out)
	}
	manual, err := filepath.Glob("../man/*.1")
	if err != nil || len(manual) == 0 {
		t.Fatalf("%d manual pages, %v", len(manual), err)
	}
	for _, page := range manual {
		want, _ := os.ReadFile(page)
		installed := filepath.Join(root, "usr/share/man/man1", filepath.Base(page))
		if got, err := os.ReadFile(installed); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, or it is another page", installed, err)
		}
	}
	for _, program := range []string{"vmmc", "vmmcd", "cfgvmmc"} {
		installed := filepath.Join(root, "usr/share/bash-completion/completions", program)
		if b, err := os.ReadFile(installed); err != nil || !strings.Contains(string(b), "complete ") {
			t.Errorf("%s: %q, %v", installed, b, err)
		}
		if s, err := os.Stat(filepath.Join(root, "usr/bin", program)); err != nil || s.Mode()&0o111 == 0 {
			t.Errorf("%s: %v, %v", program, s, err)
		}
	}
	for _, file := range []string{"usr/lib/systemd/system/vmmcd.service", "etc/vmmc/vmmcd.env", "var/lib/vmmc"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
}

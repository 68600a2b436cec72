package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// pages reads the manual pages in a directory.
func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(b)
	}
	return out
}

func TestManualPagesAreThoseOfTheCommands(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "vmmc-of-old.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VMMC_SOCKET", "/elsewhere") // the pages do not depend on the environment
	t.Setenv("VMMC_ROOT", "/elsewhere")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	if err := genMan(dir); err != nil {
		t.Fatal(err)
	}
	got, want := pages(t, dir), pages(t, filepath.Join("..", "..", "man"))
	if len(got) < 20 || got["vmmc.1"] == "" || got["vmmcd.1"] == "" || got["vmmc-node-down.1"] == "" {
		t.Errorf("%d pages were generated", len(got))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("man/ is not what the commands say: run go generate ./cmd/vmmc (-was +is):\n%s", d)
	}
}

// The help of each command says what the command does and how it is called.
func TestHelpIsWhole(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		if c.Short == "" || c.Example == "" && c.Long == "" {
			t.Errorf("%q says too little: %q, %q, %q", c.CommandPath(), c.Short, c.Long, c.Example)
		}
		if !c.HasSubCommands() && c.Example == "" {
			t.Errorf("%q has no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	for _, root := range documented() {
		look(root)
	}
}

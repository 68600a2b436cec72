package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindC(t *testing.T) {
	empty, full := t.TempDir(), t.TempDir()
	_, err := findC([]string{empty, filepath.Join(empty, "none")})
	if err == nil || !strings.Contains(err.Error(), "make -C c install") {
		t.Errorf("without the program: %v, want how to get it", err)
	}
	path := filepath.Join(full, cProgram)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if p, err := findC([]string{full}); err == nil {
		t.Errorf("a folder is taken for the program: %v", p)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := findC([]string{empty, full}); err != nil || len(p.Command) != 1 || p.Command[0] != path {
		t.Errorf("got %v, %v, want %s", p, err, path)
	}
}

// What cannot be measured in C is left out, and the reason is given.
func TestWhyNotC(t *testing.T) {
	for _, c := range []Config{{Pin: Apart}, {Encrypt: true}} {
		if err := c.whyNotC(); err == nil || c.C.Command != nil {
			t.Errorf("%+v: C is measured", c)
		}
	}
}

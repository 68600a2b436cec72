//go:build linux

package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// copied copies a file, and changes a piece of its text.
func copied(t *testing.T, from, to, old, with string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.ReplaceAll(b, []byte(old), []byte(with))
	if old != with && bytes.Equal(b, changed) {
		t.Fatalf("%s does not have %q", from, old)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, changed, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCLibrary(t *testing.T) {
	build := testutil.CLibrary(t)
	layout, _, err := readMark(filepath.Join(build, cPart), "c")
	if err != nil || layout == "" {
		t.Fatalf("the library has no mark: %v", err)
	}
	is, other := " layout="+layout+" protocol", " layout=0 protocol"
	for _, c := range []struct {
		name       string
		old, with  string // in the part in C
		gold, gwit string // in the part in Go
		want       Status
		says       string
	}{
		{"as it is built", "", "", "", "", OK, "fits the daemon"},
		{"no mark in C", "vmmc library part=c", "xmmc library part=c", "", "", Failed, cPart + " is of an older release"},
		{"no mark in Go", "", "", "vmmc library part=go", "xmmc library part=go", Failed, goPart + " is of an older release"},
		{"another layout", "", "", is, other, Failed, "has layout 0"},
		{"another protocol", "", "", "protocol=" + protocolVersion + ".", "protocol=0.", Failed, "speaks protocol 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			copied(t, filepath.Join(build, cPart), filepath.Join(dir, cPart), c.old, c.with)
			copied(t, filepath.Join(build, goPart), filepath.Join(dir, goPart), c.gold, c.gwit)
			f := cLibrary(t.Context(), &Node{LibraryDirs: []string{t.TempDir(), dir}})
			if len(f) != 1 || f[0].Status != c.want || !strings.Contains(f[0].Found, c.says) || (f[0].Mend == "") != (c.want == OK) {
				t.Errorf("found %+v, want %s and %q", f, c.want, c.says)
			}
		})
	}
	t.Run("without its part in Go", func(t *testing.T) {
		dir := t.TempDir()
		copied(t, filepath.Join(build, cPart), filepath.Join(dir, cPart), "folder=/usr/local/lib\x00", "folder="+t.TempDir()+"\x00")
		n := &Node{LibraryDirs: []string{dir}}
		if f := cLibrary(t.Context(), n); len(f) != 1 || f[0].Status != Failed || !strings.Contains(f[0].Found, "no part in Go") {
			t.Errorf("found %+v", f)
		}
		t.Setenv("VMMC_GO_LIBRARY", filepath.Join(build, goPart))
		if f := cLibrary(t.Context(), n); len(f) != 1 || f[0].Status != OK {
			t.Errorf("with VMMC_GO_LIBRARY: found %+v", f)
		}
	})
	t.Run("its part in Go where make was told to install", func(t *testing.T) {
		dir, installed := t.TempDir(), t.TempDir()
		copied(t, filepath.Join(build, cPart), filepath.Join(dir, cPart), "folder=/usr/local/lib\x00", "folder="+installed+"\x00")
		n := &Node{LibraryDirs: []string{dir}}
		if f := cLibrary(t.Context(), n); len(f) != 1 || f[0].Status != Failed || !strings.Contains(f[0].Found, "no part in Go") {
			t.Errorf("before it is installed: found %+v", f)
		}
		copied(t, filepath.Join(build, goPart), filepath.Join(installed, goPart), "", "")
		if f := cLibrary(t.Context(), n); len(f) != 1 || f[0].Status != OK {
			t.Errorf("found %+v", f)
		}
	})
	if f := cLibrary(t.Context(), &Node{LibraryDirs: []string{t.TempDir()}}); len(f) != 1 || f[0].Status != OK || !strings.Contains(f[0].Found, "not installed") {
		t.Errorf("where there is none: found %+v", f)
	}
}

// Programs of the system find the library by these.
func TestLibraryDirs(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/first:/second")
	dirs := strings.Join(LibraryDirs(), " ")
	if !strings.HasPrefix(dirs, "/first /second ") || !strings.Contains(dirs, " /usr/local/lib ") {
		t.Errorf("libraries are looked for in %s", dirs)
	}
}

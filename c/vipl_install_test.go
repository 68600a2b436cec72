//go:build linux && (amd64 || arm64)

package c_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// viplFragment uses both spellings of the descriptor.
const viplFragment = `#include <vipl.h>
#include <vipl.h>
int use(VIP_DESCRIPTOR *d);
int use(VIP_DESCRIPTOR *d) {
    d->CS.Length = d->Control.Length;
    d->CS.SegCount = 1;
    d->CS.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
    d->DS[0].Local.Data.Address = d;
    d->DS[0].Local.Handle = d->Data[0].Handle;
    d->DS[0].Remote.Data.AddressBits = d->Data[1].Data.AddressBits;
    return d->Control.Status == d->CS.Status && d->Data[1].Length == d->DS[1].Local.Length;
}
`

func TestVIPLHeader(t *testing.T) { checkHeader(t, "vipl/include", viplFragment) }

// checkHeader compiles a fragment with the headers of a folder, as each language and standard.
func checkHeader(t *testing.T, include, fragment string) {
	t.Helper()
	for _, c := range []struct{ compiler, language, standard string }{
		{"gcc", "c", "c89"},
		{"gcc", "c", "c99"},
		{"gcc", "c", "gnu17"},
		{"g++", "c++", "c++98"},
		{"g++", "c++", "gnu++17"},
	} {
		t.Run(c.standard, func(t *testing.T) {
			_, err := exec.LookPath(c.compiler)
			testutil.Require(t, err == nil, "there is no "+c.compiler)
			cmd := exec.CommandContext(t.Context(), c.compiler, "-x", c.language, "-std="+c.standard, "-Wall", "-Wextra",
				"-Wpedantic", "-Werror", "-fsyntax-only", "-I"+include, "-")
			cmd.Stdin = strings.NewReader(fragment)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// Each call has a page, and the page has its declaration.
func TestVIPLPages(t *testing.T) {
	page, err := os.ReadFile("vipl/man/vipl.3")
	if err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile("vipl/include/vipl.h")
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(header)), " ")
	calls := viplCalls(t)
	for _, call := range calls {
		b, err := os.ReadFile("vipl/man/" + call + ".3")
		if err != nil || string(b) != ".so man3/vipl.3\n" {
			t.Errorf("%s: %v, its page is %q", call, err, b)
		}
		i := strings.Index(flat, " "+call+"(")
		declaration := flat[i+1 : i+strings.Index(flat[i:], ";")+1]
		if !bytes.Contains(page, []byte(" "+declaration)) {
			t.Errorf("vipl.3 does not have %s", declaration)
		}
	}
	if files, _ := filepath.Glob("vipl/man/*.3"); len(files) != len(calls)+1 {
		t.Errorf("%d pages for %d calls", len(files), len(calls))
	}
	_, err = exec.LookPath("man")
	testutil.Require(t, err == nil, "needs man (apt-get install man-db)")
	c := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", "vipl/man/vipl.3")
	c.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANWIDTH=80")
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Run(); err != nil || errs.Len() > 0 {
		t.Errorf("man: %v\n%s", err, errs.Bytes())
	}
}

// A program is built with what pkg-config says of an installed library, with the shared libraries
// and with the archives.
func TestVIPLInstalled(t *testing.T) {
	_, err := exec.LookPath("pkg-config")
	testutil.Require(t, err == nil, "there is no pkg-config")
	build := testutil.CLibrary(t)
	prefix := filepath.Join(t.TempDir(), "usr")
	make := exec.CommandContext(t.Context(), "make", "-s", "CC=gcc", "install", "PREFIX="+prefix, "DESTDIR=")
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	// It was built for another place, which the .pc files name.
	for _, pc := range []string{"vmmc.pc", "vipl.pc"} {
		path := filepath.Join(prefix, "lib", "pkgconfig", pc)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte("/usr/local"), []byte(prefix)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"include/vipl.h", "lib/libvipl.so.1", "lib/libvipl.a", "share/man/man3/vipl.3", "share/man/man3/VipPostSend.3"} {
		if _, err := os.Stat(filepath.Join(prefix, file)); err != nil {
			t.Error(err)
		}
	}
	node := vmmctest.Nodes(t, 1)[0]
	sources, _ := filepath.Glob("vipl/test/*.c")
	flags := exec.CommandContext(t.Context(), "pkg-config", "--cflags", "--libs", "vipl")
	flags.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(prefix, "lib", "pkgconfig"))
	out, err := flags.Output()
	if err != nil {
		t.Fatalf("pkg-config: %v", err)
	}
	for name, libs := range map[string][]string{
		"shared": strings.Fields(string(out)),
		"static": {"-I" + prefix + "/include", prefix + "/lib/libvipl.a", prefix + "/lib/libvmmc.a", "-ldl"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "prog")
			args := append([]string{"-std=gnu11", "-pthread", "-o", path}, sources...)
			if out, err := exec.CommandContext(t.Context(), "gcc", append(args, libs...)...).CombinedOutput(); err != nil {
				t.Fatalf("gcc: %v\n%s", err, out)
			}
			c := exec.CommandContext(t.Context(), path, "names")
			c.Env = append(append(os.Environ(), node.Environ()...), "LD_LIBRARY_PATH="+prefix+"/lib",
				"VMMC_GO_LIBRARY="+build+"/vmmc/libvmmc-go.so")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

package facetest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// manualName is a constant that the manual has.
var manualName = regexp.MustCompile(`(?m)^#define (vmmcErr_\w+|BUF_\w+) (?:\(-[12]?\d\)|0x)`)

// standards are what C programs are compiled as. C++ is beside them.
var standards = []string{"c89", "c99", "gnu17"}

func needGCC(t *testing.T) {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "the C library is for Linux")
	_, err := exec.LookPath("gcc")
	testutil.Require(t, err == nil, "needs gcc (apt-get install gcc)")
}

func needGXX(t *testing.T) {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "the C library is for Linux")
	_, err := exec.LookPath("g++")
	testutil.Require(t, err == nil, "needs g++ (apt-get install g++)")
}

// compile checks a source text, or a file if text is empty, with all warnings as errors.
func compile(t *testing.T, compiler, standard, text string, files ...string) {
	t.Helper()
	args := []string{
		"-std=" + standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
		"-I" + filepath.Join(root, "c", "include"),
	}
	c := exec.CommandContext(t.Context(), compiler, args...)
	if text != "" {
		language := map[string]string{"gcc": "c", "g++": "c++"}[compiler]
		c.Args = append(c.Args, "-x", language, "-")
		c.Stdin = strings.NewReader(text)
	} else {
		if compiler == "g++" {
			c.Args = append(c.Args, "-x", "c++")
		}
		c.Args = append(c.Args, files...)
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(c.Args, " "), err, out.String())
	}
}

// headers are all headers, which can be included in any order, twice, and beside the system's own.
func headers(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(header("*.h"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no headers: %v", err)
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files
}

func TestHeadersCompile(t *testing.T) {
	t.Parallel()
	needGCC(t)
	for _, text := range programs(headers(t)) {
		for _, s := range standards {
			compile(t, "gcc", s, text)
		}
	}
}

func TestHeadersCompileAsCXX(t *testing.T) {
	t.Parallel()
	needGXX(t)
	for _, text := range programs(headers(t)) {
		for _, s := range []string{"c++98", "gnu++17"} {
			compile(t, "g++", s, text)
		}
	}
}

// programs are programs that include the headers: each alone first, then all.
func programs(names []string) []string {
	const system = "#include <sys/types.h>\n#include <stdlib.h>\n#include <stdint.h>\n"
	var all strings.Builder
	var out []string
	for _, n := range names {
		include := "#include <" + n + ">\n"
		all.WriteString(include)
		out = append(out, include+include+system+"int main(void) { return 0; }\n")
	}
	return append(out, system+all.String()+all.String()+"int main(void) { return 0; }\n")
}

// fragments are the files of samples/c/fragments.
func fragments(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "samples", "c", "fragments", "*.c"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no fragments: %v", err)
	}
	return files
}

func TestFragmentsCompile(t *testing.T) {
	t.Parallel()
	needGCC(t)
	for _, s := range standards {
		compile(t, "gcc", s, "", fragments(t)...)
	}
}

func TestFragmentsCompileAsCXX(t *testing.T) {
	t.Parallel()
	needGXX(t)
	compile(t, "g++", "c++98", "", fragments(t)...)
	compile(t, "g++", "gnu++17", "", fragments(t)...)
}

// The fragments together use every call, every flag and every return value of the manual.
func TestFragmentsUseAllCalls(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, f := range fragments(t) {
		all.WriteString(comments.ReplaceAllString(read(t, f), ""))
	}
	for _, h := range headers(t) {
		for name := range prototypes(t, header(h)) {
			if !strings.Contains(all.String(), name+"(") {
				t.Errorf("no fragment calls %s", name)
			}
		}
	}
	for _, m := range manualName.FindAllStringSubmatch(read(t, header("vmmc.h")), -1) {
		if m[1] != "vmmcErr_StaleHandle" && !strings.Contains(all.String(), m[1]) {
			t.Errorf("no fragment has %s", m[1])
		}
	}
}

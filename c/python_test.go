//go:build linux && (amd64 || arm64)

package c_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// pythons are the interpreters of this machine: the one in PATH, and the system's, which may be
// another one, and alone has the packages of the system.
func pythons(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		out, err := exec.CommandContext(t.Context(), name, "-c", "import sys; print(sys.executable)").Output()
		if err != nil {
			continue
		}
		if real, err := filepath.EvalSymlinks(strings.TrimSpace(string(out))); err == nil {
			found[real] = filepath.Base(real)
		}
	}
	testutil.Require(t, len(found) > 0, "needs python3 (apt-get install python3)")
	return found
}

// python is a Python program on a node, with the module and the library of this tree.
func python(t *testing.T, interpreter string, on *vmmctest.Node, args ...string) *exec.Cmd {
	t.Helper()
	module, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), interpreter, args...)
	c.Env = append(os.Environ(), "VMMC_SOCKET=/nowhere", "PYTHONPATH="+module, "PYTHONDONTWRITEBYTECODE=1",
		"VMMC_LIBRARY="+filepath.Join(testutil.CLibrary(t), "libvmmc.so.2"))
	if on != nil {
		c.Env = append(c.Env, on.Environ()...)
	}
	return c
}

// eachPython runs a test with each interpreter.
func eachPython(t *testing.T, f func(t *testing.T, interpreter string)) {
	t.Helper()
	for path, name := range pythons(t) {
		t.Run(name+" in "+filepath.Dir(path), func(t *testing.T) { f(t, path) })
	}
}

func TestPythonModule(t *testing.T) {
	eachPython(t, func(t *testing.T, interpreter string) {
		node := vmmctest.Nodes(t, 1)[0]
		out, err := python(t, interpreter, node, "-X", "faulthandler", "test/module.py", "-v").CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if n := bytes.Count(out, []byte(" ... ok\n")); n < 20 {
			t.Errorf("%d tests were run:\n%s", n, out)
		}
	})
}

func TestPythonSharesAnArray(t *testing.T) {
	eachPython(t, func(t *testing.T, interpreter string) {
		nodes := vmmctest.Nodes(t, 2)
		for i, where := range []string{"one node", "two nodes"} {
			t.Run(where, func(t *testing.T) {
				owner := python(t, interpreter, nodes[0], "../samples/python/share.py", "own", "5000")
				var errs bytes.Buffer
				owner.Stderr = &errs
				pipe, err := owner.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := owner.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(pipe)
				if !lines.Scan() {
					t.Fatalf("the owner has ended: %v\n%s", owner.Wait(), errs.Bytes())
				}
				place := strings.Fields(lines.Text())
				other := python(t, interpreter, nodes[i], append([]string{"../samples/python/share.py", "double"}, place...)...)
				if out, err := other.CombinedOutput(); err != nil || string(out) != "the sum is 1.24975e+07\n" {
					t.Errorf("the importer: %v\n%s", err, out)
					_ = owner.Process.Kill()
				}
				if !lines.Scan() || lines.Text() != "the sum is now 2.4995e+07" {
					t.Errorf("the owner printed %q\n%s", lines.Text(), errs.Bytes())
				}
				if err := owner.Wait(); err != nil {
					t.Errorf("the owner: %v\n%s", err, errs.Bytes())
				}
			})
		}
	})
}

// The module's codes are those of the library, by name and number.
func TestPythonCodes(t *testing.T) {
	b, err := os.ReadFile("include/vmmc.h")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"success": "0"}
	for _, m := range regexp.MustCompile(`(?m)^#define vmmcErr_(\w+) \((-\d+)\)`).FindAllStringSubmatch(string(b), -1) {
		want[strings.ToLower(m[1])] = m[2]
	}
	if len(want) < 40 {
		t.Fatalf("the header has %d codes", len(want))
	}
	eachPython(t, func(t *testing.T, interpreter string) {
		out, err := python(t, interpreter, nil, "-c", "import vmmc\nfor c in vmmc.Code: print(c.name, int(c))").Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for _, l := range lines {
			name, number, _ := strings.Cut(l, " ")
			if got := want[strings.ToLower(strings.ReplaceAll(name, "_", ""))]; got != number {
				t.Errorf("the module has %s, the header %q", l, got)
			}
		}
		if len(lines) != len(want) {
			t.Errorf("the module has %d codes, the header %d", len(lines), len(want))
		}
	})
}

// Each call that the module makes has as many arguments as its declaration.
func TestPythonSignatures(t *testing.T) {
	var headers strings.Builder
	for _, h := range []string{"include/vmmc.h", "include/vmmcx.h"} {
		b, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		headers.Write(b)
	}
	eachPython(t, func(t *testing.T, interpreter string) {
		out, err := python(t, interpreter, nil, "-c",
			"import vmmc\nfor n, (_, a) in vmmc._SIGNATURES.items(): print(n, len(a))").Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) < 15 {
			t.Errorf("the module has %d calls", len(lines))
		}
		for _, l := range lines {
			name, number, _ := strings.Cut(l, " ")
			m := regexp.MustCompile(`\b` + name + `\(([^;]*)\);`).FindStringSubmatch(headers.String())
			if m == nil {
				t.Errorf("%s is not declared", name)
				continue
			}
			n := strings.Count(m[1], ",") + 1
			if m[1] == "void" {
				n = 0
			}
			if number != fmt.Sprint(n) {
				t.Errorf("the module gives %s %s arguments, it has %d", name, number, n)
			}
		}
	})
}

// Without a library, and without a node, the error says what to do.
func TestPythonErrors(t *testing.T) {
	eachPython(t, func(t *testing.T, interpreter string) {
		program := "import vmmc\ntry: vmmc.open()\nexcept vmmc.Error as e: print(int(e.code), e)"
		out, err := python(t, interpreter, nil, "-c", program).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), fmt.Sprint(int(code.NoDaemon), " ")) || !strings.Contains(string(out), "/nowhere") {
			t.Errorf("without a node: %v\n%s", err, out)
		}
		c := python(t, interpreter, nil, "-c", program)
		c.Env = append(c.Env, "VMMC_LIBRARY=/nowhere/libvmmc.so")
		out, err = c.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), fmt.Sprint(int(code.BadConfig), " ")) ||
			!strings.Contains(string(out), "VMMC_LIBRARY") || !strings.Contains(string(out), "/nowhere/libvmmc.so") {
			t.Errorf("without the library: %v\n%s", err, out)
		}
	})
}

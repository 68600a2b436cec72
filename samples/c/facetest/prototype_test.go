package facetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the folder of the module, as a test of this package sees it.
const root = "../../.."

func header(name string) string { return filepath.Join(root, "c", "include", name) }

func read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// prototype is a function of a header, or a synopsis of the manual.
type prototype struct {
	result string
	params []param
}

// param is a parameter: its type, without blanks around stars, and its name.
type param struct{ typ, name string }

func (p prototype) String() string {
	var out []string
	for _, q := range p.params {
		out = append(out, strings.TrimSpace(q.typ+" "+q.name))
	}
	return p.result + "(" + strings.Join(out, ", ") + ")"
}

// types reports whether p and q have the same result and types of parameters.
func (p prototype) types(q prototype) bool {
	if p.result != q.result || len(p.params) != len(q.params) {
		return false
	}
	for i := range p.params {
		if p.params[i].typ != q.params[i].typ {
			return false
		}
	}
	return true
}

var (
	comments   = regexp.MustCompile(`(?s)/\*.*?\*/`)
	directives = regexp.MustCompile(`(?m)^#(.*\\\n)*.*$`)
	function   = regexp.MustCompile(`(?m)^([a-z_]\w*(?: \w+)*?)( \**| ?\*+)(\w+)\(([^()]*(?:\([^()]*\)[^()]*)*)\);`)
)

// prototypes are the functions that a header declares.
func prototypes(t testing.TB, file string) map[string]prototype {
	t.Helper()
	text := directives.ReplaceAllString(comments.ReplaceAllString(read(t, file), ""), "")
	text = regexp.MustCompile(`\b[A-Z]+_IN `).ReplaceAllString(text, "")
	out := map[string]prototype{}
	for _, m := range function.FindAllStringSubmatch(text, -1) {
		if _, twice := out[m[3]]; twice {
			t.Errorf("%s declares %s twice", file, m[3])
		}
		out[m[3]] = prototype{typeOf(m[1] + m[2]), params(m[4])}
	}
	// A function that the expression above does not understand would be compared with nothing.
	if n := strings.Count(text, ");"); n != len(out)+strings.Count(text, "typedef")-plainTypedefs(text) {
		t.Errorf("%s has %d declarations of functions, of which %d were understood", file, n, len(out))
	}
	return out
}

// plainTypedefs counts the type definitions that are not of pointers to functions.
func plainTypedefs(text string) int {
	return strings.Count(text, "typedef") - strings.Count(text, "typedef void (*")
}

func typeOf(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.NewReplacer(" *", "*", "* ", "*").Replace(text)
}

// params reads a list of parameters. The name of each follows the type.
func params(list string) []param {
	list = strings.Join(strings.Fields(list), " ")
	if list == "" || list == "void" {
		return nil
	}
	var out []param
	for _, p := range strings.Split(list, ",") {
		p = strings.TrimSpace(p)
		i := strings.LastIndexAny(p, " *") + 1
		out = append(out, param{typeOf(p[:i]), p[i:]})
	}
	return out
}

package rpcgo_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/vmmc-go/vmmc/internal/rpcgo"
	"github.com/vmmc-go/vmmc/internal/rpcl"
)

// A constant has in Go the bytes that it has in C, also those that are no text; what follows a
// backslash that is none of Go's escapes is left with it.
func TestStringsAsC(t *testing.T) {
	for text, want := range map[string]string{
		`hello`:             "hello",
		`tab\tquote\"\x41`:  "tab\tquote\"A",
		"he\xebllo":         "he\xebllo",
		"\xeb\\n\xff":       "\xeb\n\xff",
		"a\x00b\ufeffc":     "a\x00b\ufeffc",
		"naïve":             "naïve",
		"\\\xeb":            "\\\xeb",
		"\\é":               "\\é",
		`\q`:                `\q`,
		"ends in a \\\\":    "ends in a \\",
		"\xe2\x82 cut off":  "\xe2\x82 cut off",
		"\\n behind \ufeff": "\n behind \ufeff",
	} {
		file, err := rpcl.Load("in.x", rpcl.Options{Open: func(path string) ([]byte, error) {
			if path == "in.x" {
				return []byte(`const GREETING = "` + text + `";`), nil
			}
			return nil, os.ErrNotExist
		}})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		code, err := rpcgo.Write(file, "p")
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		m := regexp.MustCompile(`GREETING += (".*")`).FindSubmatch(code)
		if m == nil {
			t.Errorf("%q: there is no constant in %s", text, code)
			continue
		}
		if got, err := strconv.Unquote(string(m[1])); err != nil || got != want {
			t.Errorf("%q is %s in Go: %q, want %q (%v)", text, m[1], got, want, err)
		}
	}
}

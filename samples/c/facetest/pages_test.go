package facetest

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

var (
	font    = regexp.MustCompile(`\\f[BIPR]|\\&`)
	section = regexp.MustCompile(`(?m)^\.SH (.*)\n`)
	shared  = regexp.MustCompile(`^\.so man3/(\w+)\.3\n$`)
	code    = regexp.MustCompile(`vmmc(?:Err)?_\w+`)
)

func pageFile(call string) string { return filepath.Join(root, "c", "man", call+".3") }

// Each call has a page, whose synopsis is its declaration, and each page is of a call.
func TestPages(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"vmmc": true, "sbl": true}
	for _, h := range headers(t) {
		for name := range prototypes(t, header(h)) {
			known[name] = true
		}
	}
	constants := read(t, header("vmmc.h"))
	for name := range known {
		b, err := os.ReadFile(pageFile(name))
		if err != nil {
			t.Errorf("%s has no page: %v", name, err)
			continue
		}
		// Calls may share a page.
		if m := shared.FindSubmatch(b); m != nil {
			checkSynopsis(t, name, sections(read(t, pageFile(string(m[1]))))["SYNOPSIS"])
			continue
		}
		checkPage(t, name, string(b), constants, known)
	}
	files, err := filepath.Glob(pageFile("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".3"); !known[name] {
			t.Errorf("%s is the page of no call", f)
		}
	}
}

// sections are the parts of a page, by their headings, without fonts.
func sections(text string) map[string]string {
	text = strings.ReplaceAll(font.ReplaceAllString(text, ""), `\-`, "-")
	out := map[string]string{}
	starts := section.FindAllStringSubmatchIndex(text, -1)
	for i, s := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		out[text[s[2]:s[3]]] = text[s[1]:end]
	}
	return out
}

func checkSynopsis(t *testing.T, name, text string) {
	t.Helper()
	flat := strings.Join(strings.Fields(text), " ")
	if p := declaration(t, name); !strings.Contains(flat, p) {
		t.Errorf("%s: the synopsis is %q, declared is %q", name, flat, p)
	}
}

func checkPage(t *testing.T, name, text, constants string, known map[string]bool) {
	t.Helper()
	parts := sections(text)
	wanted := []string{"NAME", "LIBRARY", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"}
	if name != "vmmc" {
		wanted = append(wanted, "RETURN VALUE")
	}
	if name != "vmmc" && name != "sbl" {
		checkSynopsis(t, name, parts["SYNOPSIS"])
	}
	for _, s := range wanted {
		if strings.TrimSpace(parts[s]) == "" {
			t.Errorf("%s: no section %s", name, s)
		}
	}
	if title := parts["NAME"]; !strings.HasPrefix(title, name) || !strings.Contains(title, " - ") {
		t.Errorf("%s: its name is %q", name, title)
	}
	for _, c := range code.FindAllString(strings.Join(slices.Collect(maps.Values(parts)), "\n"), -1) {
		if !known[c] && !regexp.MustCompile(`\b`+c+`\b`).MatchString(constants) {
			t.Errorf("%s speaks of %s, which is not declared", name, c)
		}
	}
}

// declaration is the text of a declaration, in one line.
func declaration(t *testing.T, name string) string {
	t.Helper()
	for _, h := range headers(t) {
		text := regexp.MustCompile(`\b[A-Z]+_IN `).ReplaceAllString(read(t, header(h)), "")
		m := regexp.MustCompile(`(?m)^\w[\w *]*\b` + name + `\([^;]*;`).FindString(text)
		if m != "" {
			return strings.Join(strings.Fields(m), " ")
		}
	}
	t.Fatalf("%s is not declared", name)
	return ""
}

// The formatter has nothing to say about the pages.
func TestPagesFormat(t *testing.T) {
	t.Parallel()
	_, err := exec.LookPath("man")
	testutil.Require(t, err == nil, "needs man (apt-get install man-db)")
	files, err := filepath.Glob(pageFile("*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, f := range files {
		if shared.MatchString(read(t, f)) {
			continue // its page is found beside it only where it is installed
		}
		c := exec.CommandContext(t.Context(), "man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", f)
		c.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANWIDTH=80")
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); err != nil || errs.Len() > 0 || out.Len() == 0 {
			t.Errorf("%s: %v\n%s", f, err, errs.String())
		}
	}
}

package unix

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What is no argument stays as it is: it may be memory that cannot be written.
func TestEraseArgumentLeavesOtherStrings(t *testing.T) {
	const literal = "a literal in the program's text"
	for _, s := range []string{literal, strings.Repeat("heap", 10)} {
		if got, err := EraseArgument(s); err == nil || got != s {
			t.Errorf("erased %q, which is no argument: %q, %v", s, got, err)
		}
	}
	if got, err := EraseArgument(""); got != "" || err != nil {
		t.Errorf("an empty argument: %q, %v", got, err)
	}
}

// The child erases its last argument and shows what other users then see of it.
func TestEraseArgument(t *testing.T) {
	const secret = "--secret=sesame"
	if last := os.Args[len(os.Args)-1]; os.Getenv("ERASE_ARGUMENT") != "" {
		_, value, _ := strings.Cut(last, "=")
		got, err := EraseArgument(value)
		if err != nil || got != "sesame" {
			t.Fatalf("got %q, %v", got, err)
		}
		b, err := os.ReadFile("/proc/self/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		if s := string(b); strings.Contains(s, "sesame") || !strings.Contains(s, "before") || !strings.Contains(s, "--secret=\x00") {
			t.Fatalf("the command line is %q", s)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, "-test.run=^TestEraseArgument$", "--", "before", secret)
	c.Env = append(os.Environ(), "ERASE_ARGUMENT=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

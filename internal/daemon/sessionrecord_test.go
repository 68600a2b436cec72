package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// A user's directory is what the system says it is, also after the daemon was started again.
func TestHomeOfARecordedSession(t *testing.T) {
	for _, home := range []string{
		"/home/ann", "/", "", "/home/\xff\xfe", "/home/\xe9t\xe9", "/home/\ufffd", `/home/\ufffd`,
	} {
		state := t.TempDir()
		if err := os.Mkdir(filepath.Join(state, "sessions"), 0o700); err != nil {
			t.Fatal(err)
		}
		ts := &sessions{state: state}
		if err := ts.write(record{Name: "s", User: "ann", Home: home}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(ts.file("s"))
		if err != nil {
			t.Fatal(err)
		}
		var r record
		if err := r.read(b); err != nil || r.Home != home || r.Name != "s" {
			t.Errorf("home %q is recorded as %q (%v)", home, r.Home, err)
		}
	}
}

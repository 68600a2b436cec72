package statedir

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
		d := New(state)
		if err := d.Write(Record{Name: "s", User: "ann", Home: home}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(d.file("s"))
		if err != nil {
			t.Fatal(err)
		}
		var r Record
		if err := r.read(b); err != nil || r.Home != home || r.Name != "s" {
			t.Errorf("home %q is recorded as %q (%v)", home, r.Home, err)
		}
	}
}

package hosts_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

// FuzzParse: what parses, formats, and what was formatted parses to the same.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, in []byte) {
		list, err := hosts.Parse(bytes.NewReader(in), "in")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "in:") {
				t.Errorf("error %q does not begin with the file and line", err)
			}
			return
		}
		text := hosts.Format(list)
		again, err := hosts.Parse(strings.NewReader(text), "again")
		if err != nil {
			t.Fatalf("%q formatted to %q: %v", in, text, err)
		}
		if diff := cmp.Diff(list, again); diff != "" {
			t.Errorf("-parsed +formatted and parsed:\n%s", diff)
		}
	})
}

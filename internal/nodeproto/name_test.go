package nodeproto

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/code"
)

func TestParseName(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	for s, want := range map[string]NameRef{
		"queue":                        {Name: "queue"},
		".group.7":                     {Name: ".group.7"},
		"two words":                    {Name: "two words"},
		"a\u00a0b":                     {Name: "a\u00a0b"},
		"Größe":                        {Name: "Größe"},
		"n2/queue":                     {Node: "n2", Name: "queue"},
		"N2/Queue":                     {Node: "n2", Name: "Queue"},
		"/queue":                       {Cluster: true, Name: "queue"},
		long:                           {Name: long},
		"/" + long:                     {Cluster: true, Name: long},
		strings.Repeat("ä", MaxName/2): {Name: strings.Repeat("ä", MaxName/2)},
	} {
		got, err := ParseName(s)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v %s", s, err, diff)
		}
	}
	for s, says := range map[string]string{
		"":                                   "is empty",
		"/":                                  "is empty",
		"n2/":                                "is empty",
		"a/b/c":                              `has a "/" at byte 1`,
		"//x":                                `has a "/" at byte 0`,
		"/x/":                                `has a "/" at byte 1`,
		"../x":                               "this is none",
		"n 2/x":                              "this is none",
		strings.Repeat("n", 65) + "/x":       "this is none",
		strings.Repeat("x", MaxName+1):       "has 129 bytes",
		strings.Repeat("ä", MaxName/2) + "x": "has 129 bytes",
		"a\x00":                              "U+0000 at byte 1",
		"a\nb":                               "U+000A at byte 1",
		"a\u0085b":                           "U+0085 at byte 1",
		"\u202ea":                            "U+202E at byte 0",
		"a\ufeff":                            "U+FEFF at byte 1",
		"a\u2028b":                           "U+2028 at byte 1",
		"a\u2029b":                           "U+2029 at byte 1",
		"a\ue000":                            "U+E000 at byte 1",
		"a\xff":                              "not UTF-8 at byte 1",
		"a\xed\xa0\x80":                      "not UTF-8 at byte 1", // a lone surrogate
		" a":                                 "begins or ends with a space",
		"a ":                                 "begins or ends with a space",
		"n2/ a":                              "begins or ends with a space",
		"a\u00a0":                            "begins or ends with a space",
		"a\u3000":                            "begins or ends with a space",
	} {
		if _, err := ParseName(s); !errors.Is(err, code.BadName) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", s, err, says)
		}
	}
}

// FuzzParseName: a name that is accepted is written as it was read, and nothing in it is invisible.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"queue", "n2/queue", "/queue", "N2/a b", "//x", "a\u200d", "\xff", "a\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseName(s)
		if err != nil {
			if !errors.Is(err, code.BadName) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		again, err := ParseName(r.String())
		if diff := cmp.Diff(r, again); err != nil || diff != "" {
			t.Errorf("%q is written as %q: %v %s", s, r, err, diff)
		}
		if r.Node == "" && r.String() != s {
			t.Errorf("%q is written as %q", s, r)
		}
		if CheckName(r.Name) != nil || !utf8.ValidString(r.Name) || strings.ContainsRune(r.Name, '/') ||
			strings.ContainsFunc(r.Name, unicode.IsControl) || strings.TrimSpace(r.Name) != r.Name {
			t.Errorf("%q is accepted", s)
		}
	})
}

// The numbers of requests are said to daemons and programs of other releases.
func TestMethodNumbers(t *testing.T) {
	for want, m := range []Method{
		0, Register, Export, Unexport, Import, Connect, Release, Forget, Offer, Accept, Handover, Withdraw,
		Sever, ReportEvent, Departed, SessionNodes, Publish, Unpublish, ListNames,
	} {
		if int(m) != want {
			t.Errorf("a request has number %d, want %d", m, want)
		}
	}
	if Control != 33 || Rejoin != 48 || Again != 49 {
		t.Errorf("Control is %d, Rejoin %d, Again %d", Control, Rejoin, Again)
	}
}

// A batch of the longest names fits into a packet, whatever JSON makes of them.
func TestNamesFitIntoAPacket(t *testing.T) {
	name := strings.Repeat("<", MaxName)
	var r AgainRequest
	for range AgainNames {
		r.Names = append(r.Names, PublishRequest{
			Name: name, Cluster: true, Set: true, ID: 1<<32 - 1, Serial: 1<<64 - 1, Slot: 1<<32 - 1, State: 1<<32 - 1,
		})
	}
	var l NameList
	for range ListedNames {
		l.Rows = append(l.Rows, NameRow{Name: name, PID: 1<<32 - 1, Buffer: 1<<32 - 1, Size: 1<<63 - 1, Set: true})
	}
	for what, body := range map[string]any{"names announced": r, "names listed": l} {
		if _, err := encode(header{kind: request}, body); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

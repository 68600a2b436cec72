package cert

import (
	"net/url"
	"strings"
	"testing"
)

func TestParseURI(t *testing.T) {
	tests := []struct {
		uri  string
		want Peer // zero for an error
	}{
		{"vmmc://c/node/a", Peer{"c", Node, "a"}},
		{"vmmc://C.example/node/A-b_1.x", Peer{"C.example", Node, "A-b_1.x"}},
		{"vmmc://c/user/ann@REALM", Peer{"c", User, "ann@REALM"}},
		{"vmmc://c/user/a%2Fb%25", Peer{"c", User, "a/b%"}},
		{"vmmc://c/user/%C3%A9", Peer{"c", User, "é"}},
		{"vmmc://c/user/..", Peer{"c", User, ".."}},

		{uri: "http://c/node/a"},
		{uri: "vmmc:c/node/a"},
		{uri: "vmmc://c"},
		{uri: "vmmc://c/node"},
		{uri: "vmmc://c/node/"},
		{uri: "vmmc://c/Node/a"},
		{uri: "vmmc://c/process/a"},
		{uri: "vmmc://c/node/a/b"},
		{uri: "vmmc://c/node/a%2Fb"},
		{uri: "vmmc://c/node/.."},
		{uri: "vmmc:///node/a"},
		{uri: "vmmc://c//node/a"},
		{uri: "vmmc://c:1/node/a"},
		{uri: "vmmc://u@c/node/a"},
		{uri: "vmmc://c/node/a?q"},
		{uri: "vmmc://c/node/a?"},
		{uri: "vmmc://c/node/a#f"},
		{uri: "vmmc://c/node/%61"},    // a second spelling of a
		{uri: "vmmc://c/user/a/b"},    // and of a%2Fb
		{uri: "vmmc://c/user/%c3%a9"}, // and of é
		{uri: "vmmc://c/user/a%0Ab"},
		{uri: "vmmc://c/user/%FF"},
		{uri: "vmmc://c/node/" + strings.Repeat("a", 65)},
	}
	for _, tt := range tests {
		u, err := url.Parse(tt.uri)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseURI(u)
		if got != tt.want || (err == nil) != (tt.want != Peer{}) {
			t.Errorf("parseURI(%q) = %v, %v, wanted %v", tt.uri, got, err, tt.want)
		}
		if err == nil && got.uri().String() != tt.uri {
			t.Errorf("%v is written %q, wanted %q", got, got.uri(), tt.uri)
		}
	}
}

func TestPeerString(t *testing.T) {
	p := Peer{"c", User, "a\nb"}
	if got, want := p.String(), `user "a\nb" of cluster "c"`; got != want {
		t.Errorf("got %s, wanted %s", got, want)
	}
	if got := (Peer{}).String(); !strings.HasPrefix(got, "kind 0") {
		t.Errorf("the zero Peer passes for %s", got)
	}
}

// FuzzParseURI: a URI that is accepted has one spelling, and names a Peer that
// could have been issued.
func FuzzParseURI(f *testing.F) {
	for _, s := range []string{
		"vmmc://c/node/a", "vmmc://c/user/a%2Fb", "vmmc://c/user/%C3%A9", "vmmc://c:1/node/a",
		"vmmc://u@c/node/a?q#f", "vmmc:c/node/a", "vmmc://c/user/%c3", "vmmc://%63/node/a", "vmmc://c//node/a",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		p, err := parseURI(u)
		if err != nil {
			return
		}
		if err := p.check(); err != nil {
			t.Errorf("%q was accepted as %v: %v", s, p, err)
		}
		again, err := url.Parse(p.uri().String())
		if err != nil {
			t.Fatal(err)
		}
		if q, err := parseURI(again); err != nil || q != p {
			t.Errorf("%q is %v, written %q, which is %v, %v", s, p, again, q, err)
		}
	})
}

package hosts_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, in string
		want     []hosts.Host
	}{
		{"empty", "", nil},
		{"comments and blanks", "# a cluster\n\n   \t\n#end", nil},
		{"no last newline", "a h:1", []hosts.Host{{"a", "h:1", "h:1", 0}}},
		{"carriage returns", "a h:1\r\nb h:2\r\n", []hosts.Host{{"a", "h:1", "h:1", 0}, {"b", "h:2", "h:2", 0}}},
		{"data address", "a h:1 g:65535 # fast", []hosts.Host{{"a", "h:1", "g:65535", 0}}},
		{"comment without a space", "a h:1# fast", []hosts.Host{{"a", "h:1", "h:1", 0}}},
		{"places kept free", "-\na h:1\n - # was b\n-\nc h:2\n-\n", []hosts.Host{{"a", "h:1", "h:1", 1}, {"c", "h:2", "h:2", 2}}},
		{"order kept", "z h:1\na h:2\nM h:3\n", []hosts.Host{{"z", "h:1", "h:1", 0}, {"a", "h:2", "h:2", 0}, {"m", "h:3", "h:3", 0}}},
		{"all name characters", "Az09-_. h:1", []hosts.Host{{"az09-_.", "h:1", "h:1", 0}}},
		{"IPv4 and IPv6", "a 10.0.0.1:1 [fe80::1%eth0]:2", []hosts.Host{{"a", "10.0.0.1:1", "[fe80::1%eth0]:2", 0}}},
		{"longest name", strings.Repeat("n", 64) + " h:1", []hosts.Host{{strings.Repeat("n", 64), "h:1", "h:1", 0}}},
		{"longest line", "a h:1 #" + strings.Repeat("x", 1017) + "\r\nb h:2", []hosts.Host{{"a", "h:1", "h:1", 0}, {"b", "h:2", "h:2", 0}}},
		{"most lines", strings.Repeat("#\n", 9_999) + "a h:1\n", []hosts.Host{{"a", "h:1", "h:1", 0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := hosts.Parse(strings.NewReader(tt.in), "f")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	const right = `a line is "name host:port [data-host:port]"`
	tests := []struct {
		name, in string
		want     []string
	}{
		{"one field", "\na\n", []string{"f:2: ", "found 1 field(s)", right}},
		{"four fields", "a h:1 h:2 h:3", []string{"f:1: ", "found 4 field(s)", right}},
		{"no port", "a h", []string{"control address", "not host:port", right}},
		{"bad data address", "a h:1 h", []string{"data address", "not host:port"}},
		{"no host", "a :1", []string{"the host is missing"}},
		{"port zero", "a h:0", []string{`port "0"`, "1 to 65535"}},
		{"port too large", "a h:65536", []string{`port "65536"`}},
		{"port with a zero in front", "a h:01", []string{`port "01"`}},
		{"port with a sign", "a h:+1", []string{`port "+1"`}},
		{"port missing", "a h:", []string{`port ""`}},
		{"service name", "a h:http", []string{`port "http"`}},
		{"bare IPv6", "a fe80::1:80", []string{"not host:port"}},
		{"bad IPv6", "a [fe80::g]:80", []string{"bad IPv6 address"}},
		{"bad host", "a h/x:80", []string{`the host has the character '/'`}},
		{"long host", "a " + strings.Repeat("h", 254) + ":1", []string{"254 bytes"}},
		{"duplicate in another case", "node1 h:1\nb h:2\nNODE1 h:3", []string{"f:3: ", `node "node1" is already on line 1`}},
		{"two names at one address", "a h:1\nb h:2\nc h:1", []string{"f:3: ", `node "c" has the address h:1 of the node on line 1`}},
		{"duplicate", "a h:1\nb h:2\na h:3", []string{"f:3: ", `node "a" is already on line 1`}},
		{"bad name", "a/b h:1", []string{`character '/'`, "letters, digits", right}},
		{"not ASCII", "ä h:1", []string{`character 'ä'`}},
		{"dots", ".. h:1", []string{"begins with"}},
		{"option", "-a h:1", []string{"begins with"}},
		{"free place with an address", "- h:1", []string{"begins with"}},
		{"long name", strings.Repeat("n", 65) + " h:1", []string{"has 65 bytes, the limit is 64"}},
		{"line too long by one", "#\n#" + strings.Repeat("x", 1024) + "\n", []string{"f:2: ", "longer than 1024 bytes"}},
		{"line far too long", "#\n#" + strings.Repeat("x", 1<<16), []string{"f:2: ", "longer than 1024 bytes"}},
		{"too many lines", strings.Repeat("\n", 10_001), []string{"f:10001: ", "more than 10000 lines"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := hosts.Parse(strings.NewReader(tt.in), "f")
			if err == nil {
				t.Fatalf("parsed to %v", got)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestParseReadError(t *testing.T) {
	bad := errors.New("bad disk")
	_, err := hosts.Parse(iotest.ErrReader(bad), "f")
	if !errors.Is(err, bad) {
		t.Errorf("error %v does not wrap the reader's", err)
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmmc-hosts.txt")
	if _, err := hosts.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gave %v", err)
	}
	want := []hosts.Host{{"b", "h:1", "h:1", 0}, {"a", "h:2", "h:3", 0}}
	if err := os.WriteFile(path, []byte(hosts.Format(want)), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := hosts.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLookup(t *testing.T) {
	list := []hosts.Host{{"a", "h:1", "h:1", 0}, {"b", "h:2", "h:2", 0}}
	if h, ok := hosts.Lookup(list, "b"); !ok || h != list[1] {
		t.Errorf("Lookup(b) = %v, %v", h, ok)
	}
	if h, ok := hosts.Lookup(list, "B"); !ok || h != list[1] { // the manual writes both
		t.Errorf("Lookup(B) = %v, %v", h, ok)
	}
	if h, ok := hosts.Lookup(list, "c"); ok {
		t.Errorf("Lookup(c) found %v", h)
	}
}

// TestURL: the zone of a link-local address is escaped, and read as it was.
func TestURL(t *testing.T) {
	for control, want := range map[string]string{
		"10.0.0.1:7411":     "https://10.0.0.1:7411",
		"node:7411":         "https://node:7411",
		"[::1]:7411":        "https://[::1]:7411",
		"[fe80::a%lo]:7411": "https://[fe80::a%25lo]:7411",
	} {
		got := hosts.URL(control)
		u, err := url.Parse(got)
		if got != want || err != nil || u.Host != control {
			t.Errorf("URL(%s) = %s, want %s; it reads as %v, %v", control, got, want, u, err)
		}
	}
}

func TestPlace(t *testing.T) {
	list, err := hosts.Parse(strings.NewReader("-\na h:1\n-\n-\nb h:2\nc h:3\n"), "f")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 4, 5} {
		if got := hosts.Place(list, i); got != want {
			t.Errorf("node %s has place %d, wanted %d", list[i].Name, got, want)
		}
	}
}

func ExampleFormat() {
	fmt.Print(hosts.Format([]hosts.Host{
		{Name: "node1", Control: "10.0.0.1:7411", Data: "10.0.0.1:7411"},
		{Name: "node2", Control: "10.0.0.2:7411", Data: "192.168.0.2:7412"},
	}))
	// Output:
	// node1 10.0.0.1:7411
	// node2 10.0.0.2:7411 192.168.0.2:7412
}

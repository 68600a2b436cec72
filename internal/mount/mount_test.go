package mount

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Share{
		`\\FS\Guest`:       {"cifs", "//FS/Guest"},
		`//fs/a b/c/`:      {"cifs", "//fs/a b/c"},
		`fs:/export`:       {"nfs", "fs:/export"},
		`fs:/a:/b -o x`:    {"nfs", "fs:/a:/b -o x"},
		`[fe80::1%2]:/x`:   {"nfs", "[fe80::1%2]:/x"},
		`//10.0.0.1/guest`: {"cifs", "//10.0.0.1/guest"},
	} {
		if got, err := Parse(text); err != nil || got != want || !IsRemote(text) {
			t.Errorf("%q is %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"//fs", "//fs/", "//", `\\`, ":/x", "fs:x", "-o:/x", "//-o/x", "//fs/a,uid=0", "a:/x,b:/y", "//fs/a\nb", "//fs/../x",
		`\\fs\x\..\y`, "LABEL=x:/y", "a b:/x", "[]:/x", "[::1:/x", "//fs/\xff", "fs:/" + strings.Repeat("x", maxSource),
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for _, text := range []string{"", "/srv/a:/b", "/x", "relative"} {
		if IsRemote(text) {
			t.Errorf("%q is of another machine", text)
		}
	}
}

func TestCredentials(t *testing.T) {
	for _, c := range []struct {
		Credentials
		want string // "": refused
	}{
		{Credentials{"a", "b"}, "username=a\npassword=b\n"},
		{Credentials{`D\a`, " ,=b "}, "username=a\npassword= ,=b \ndomain=D\n"},
		{Credentials{"a", ""}, "username=a\npassword=\n"},
		{Credentials{"", "b"}, ""},
		{Credentials{"a,uid=0", "b"}, ""},
		{Credentials{"a\nuid=0", "b"}, ""},
		{Credentials{"a", "b\ndomain=x"}, ""},
		{Credentials{"a", "b\x00"}, ""},
		{Credentials{"a", strings.Repeat("x", maxPassword+1)}, ""},
	} {
		err := c.Check()
		if got := string(c.file()); (err == nil) != (c.want != "") || err == nil && got != c.want {
			t.Errorf("%+v: %q (%v), want %q", c.Credentials, got, err, c.want)
		}
	}
}

func TestPoints(t *testing.T) {
	got := parsePoints(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
bad
`)
	want := []Point{{"ext3", "/mnt1", "/mnt 2"}, {"cgroup2", "/", "/sys/fs/cgroup/unified"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

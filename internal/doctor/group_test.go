package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The members of a group are those that all services of the system list, and not only its files.
func TestGroupsOfOtherServices(t *testing.T) {
	const daemon, gid = 900, 950
	for _, c := range []struct {
		what, passwd, group string
		all, one, members   string // what getent says of all users, of the daemon's, and of the group
		want                string // in the error; empty: the group is the daemon's alone
	}{
		{what: "files alone", passwd: "vmmc:x:900:950::/:/bin/sh", group: "vmmc:x:950:"},
		{what: "files, another's own group", passwd: "vmmc:x:900:950::/:/bin/sh\nann:x:7:950::/:/bin/sh", group: "vmmc:x:950:", want: "also has ann"},
		{what: "the user and the group are not in the files", one: "vmmc:x:900:950::/:/bin/sh", members: "vmmc:*:950:"},
		{what: "a member is not in the files", passwd: "vmmc:x:900:950::/:/bin/sh", members: "vmmc:*:950:vmmc,ldapuser", want: "group vmmc also has ldapuser"},
		{what: "a listed user has it as the own group", passwd: "vmmc:x:900:950::/:/bin/sh", group: "vmmc:x:950:", all: "vmmc:x:900:950::/:/bin/sh\nlu:x:70001:950::/:/bin/sh", want: "also has lu"},
		{what: "the daemon's user is a member by a service", one: "vmmc:x:900:100::/:/bin/sh", members: "keys:*:950:vmmc"},
		{what: "root is nobody else", one: "vmmc:x:900:950::/:/bin/sh", members: "keys:*:950:root,vmmc"},
		{what: "the daemon's user is in no list", passwd: "vmmc:x:900:100::/:/bin/sh", members: "keys:*:950:", want: "is not in its group keys"},
		{what: "nobody knows either", want: "user 900, whom the daemon runs as, is not in its group 950"},
		{what: "what is said twice is told once", passwd: "vmmc:x:900:950::/:/bin/sh\nann:x:7:950::/:/bin/sh", group: "vmmc:x:950:ann", all: "ann:x:7:950::/:/bin/sh", members: "vmmc:x:950:ann", want: "also has ann, who"},
	} {
		dir := t.TempDir()
		at := func(name, text string) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			return path
		}
		for name, text := range map[string]string{"passwd": c.all, "passwd 900": c.one, "group 950": c.members} {
			at(name, text)
		}
		a := accounts{
			passwd: at("etc-passwd", c.passwd), group: at("etc-group", c.group),
			getent: at("getent", "#!/bin/sh\ncat '"+dir+"'/\"$*\"; exit 2"),
		}
		err := a.alone(t.Context(), gid, daemon)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		a.getent = filepath.Join(dir, "nothing") // a system without it
		if err := a.alone(t.Context(), gid, daemon); c.members == "" && c.all == "" && (err == nil) != (c.want == "") {
			t.Errorf("%s, without getent: %v", c.what, err)
		}
	}
}

// Users whom a service need not list are told of.
func TestServicesWhoseUsersAreNotListed(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		"passwd: files\ngroup: files\nhosts: files dns":                       "",
		"passwd:         files systemd\ngroup: files [SUCCESS=merge] systemd": "",
		"passwd: files sss\ngroup: files sss # ldap":                          "sss",
		"passwd: files ldap [NOTFOUND=return] nis\n group : files winbind":    "ldap, nis, winbind",
		"#passwd: ldap\nshadow: ldap":                                         "",
	} {
		path := filepath.Join(t.TempDir(), "nsswitch.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (accounts{nsswitch: path}).unseen(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := (accounts{nsswitch: "/nonexistent"}).unseen(); got != "" {
		t.Errorf("without the file: %q", got)
	}
}

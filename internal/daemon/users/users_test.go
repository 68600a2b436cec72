package users

import (
	"os"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

func TestAdministrators(t *testing.T) {
	own := uint32(os.Getuid())
	a := Accounts{Node: "n1", Admins: []string{"ops"}}
	for name, test := range map[string]struct {
		c    Caller
		want bool
	}{
		"root on this machine":         {Caller{User: "toor", Cred: &unix.Cred{UID: 0}}, true},
		"root elsewhere":               {Caller{User: "root"}, true},
		"the daemon's own user":        {Caller{User: Name(own), Cred: &unix.Cred{UID: own}}, true},
		"the daemon's user elsewhere":  {Caller{User: Name(own)}, true},
		"a named one on this machine":  {Caller{User: "ops", Cred: &unix.Cred{UID: 54321}}, true},
		"a named one elsewhere":        {Caller{User: "ops"}, true},
		"another user":                 {Caller{User: "guest", Cred: &unix.Cred{UID: 54321}}, false},
		"another user elsewhere":       {Caller{User: "guest"}, false},
		"nobody":                       {Caller{}, false},
		"a name that begins with ours": {Caller{User: "ops2"}, false},
	} {
		if got := a.Administrates(test.c); got != test.want {
			t.Errorf("%s: Administrates says %v", name, got)
		}
	}
}

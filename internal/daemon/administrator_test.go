package daemon

import (
	"os"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

func TestAdministrators(t *testing.T) {
	own := uint32(os.Getuid())
	n := newNode(t.Context(), Config{Name: "n1", Admins: []string{"ops"}})
	for name, test := range map[string]struct {
		c    caller
		want bool
	}{
		"root on this machine":         {caller{user: "toor", cred: &unix.Cred{UID: 0}}, true},
		"root elsewhere":               {caller{user: "root"}, true},
		"the daemon's own user":        {caller{user: userName(own), cred: &unix.Cred{UID: own}}, true},
		"the daemon's user elsewhere":  {caller{user: userName(own)}, true},
		"a named one on this machine":  {caller{user: "ops", cred: &unix.Cred{UID: 54321}}, true},
		"a named one elsewhere":        {caller{user: "ops"}, true},
		"another user":                 {caller{user: "guest", cred: &unix.Cred{UID: 54321}}, false},
		"another user elsewhere":       {caller{user: "guest"}, false},
		"nobody":                       {caller{}, false},
		"a name that begins with ours": {caller{user: "ops2"}, false},
	} {
		if got := n.accounts.administrates(test.c); got != test.want {
			t.Errorf("%s: administrates says %v", name, got)
		}
	}
	s := &session{n: n, record: record{Name: "s", User: "guest"}}
	if s.authorize(caller{user: "ops"}) == nil {
		t.Error("an administrator may use another user's session")
	}
}

package names

import (
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// Scope is the user and the session whose processes share names. Session is "" outside of sessions.
type Scope struct{ User, Session string }

func (s Scope) String() string {
	if s.Session == "" {
		return fmt.Sprintf("user %q", s.User)
	}
	return fmt.Sprintf("user %q, session %q", s.User, s.Session)
}

// Key is a name in its scope. One of the cluster is another one than the same on this node.
type Key struct {
	Scope
	Name    string
	Cluster bool
}

func (k Key) String() string {
	r := nodeproto.NameRef{Name: k.Name, Cluster: k.Cluster}
	return fmt.Sprintf("name %q of %v", r.String(), k.Scope)
}

// TakenError is the error of a claim of a name that another process has, or another export of the
// same process.
type TakenError struct {
	Key   Key
	Owner nodeproto.ProcessID
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("the %v is process %d's on node %q", e.Key, e.Owner.PID, e.Owner.Node)
}

// Unwrap lets errors.Is find the code.
func (e *TakenError) Unwrap() error { return code.NameTaken }

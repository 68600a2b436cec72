// Package doctor checks whether a machine has what a node needs, and says how to
// mend what it lacks.
package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/root"
)

// Status is how a check went.
type Status string

// The statuses. What is a warning works, but less well, or is at an end soon.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// Finding is what a check has found.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Mend   string `json:"mend,omitempty"` // how, unless all is well
}

// Node is what is to be checked: vmmcd's flags. Without a hosts file it is alone.
type Node struct {
	root.Places
	Name string

	LibraryDirs []string // where the C library is looked for; nil: where the system finds it

	Now func() time.Time // nil: the clock
}

func (n *Node) now() time.Time {
	if n.Now != nil {
		return n.Now()
	}
	return time.Now()
}

// check is one of them. It may find several things, or nothing that concerns this
// node.
type check func(context.Context, *Node) []Finding

var checks = []check{
	files, lockedMemory, mappings, processes,
	memory, pageTracking, hugePages,
	socket, state, certificates, keys, addresses, others,
	cgroup, mounting, cLibrary,
}

// Examine runs all checks at once. The findings are in an order that stays.
func Examine(ctx context.Context, n Node) []Finding {
	found := make([][]Finding, len(checks))
	var all sync.WaitGroup
	for i, c := range checks {
		all.Go(func() { found[i] = c(ctx, &n) })
	}
	all.Wait()
	var out []Finding
	for _, f := range found {
		out = append(out, f...)
	}
	return out
}

func good(check, format string, args ...any) []Finding {
	return []Finding{{Check: check, Status: OK, Found: fmt.Sprintf(format, args...)}}
}

func bad(s Status, check, mend, format string, args ...any) []Finding {
	return []Finding{{Check: check, Status: s, Found: fmt.Sprintf(format, args...), Mend: mend}}
}

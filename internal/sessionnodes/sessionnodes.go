// Package sessionnodes derives the nodes of a session, and their order, from what each
// node of the cluster says of the session.
package sessionnodes

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// MaxNames bounds the names of nodes that a call to make a session lists, in bytes.
const MaxNames = 32 << 10

// Request fills in which nodes the call makes the session on, in order, and when. The
// list is left out where it is too long: the nodes of the call are ordered then as the
// hosts file has them.
func Request(r *nodev1.AddSessionRequest, nodes []string) {
	r.Made, r.Nodes = timestamppb.Now(), nodes
	if Size(nodes) > MaxNames {
		r.Nodes = nil
	}
}

// Size is the length of all names, in bytes.
func Size(names []string) (n int) {
	for _, s := range names {
		n += len(s)
	}
	return n
}

// Answer is what a node said of a session.
type Answer struct {
	Node   string
	Silent bool                          // the node did not answer, or does not know the question
	Origin *nodev1.SessionOriginResponse // nil: the node has no such session
}

// position orders nodes: by the call that made the session there, then by the node's
// index in that call's list, then by the hosts file.
type position struct {
	made  time.Time // zero: an older version made it, which did not record the time
	index int
	host  int
}

func (p position) compare(q position) int {
	return cmp.Or(p.made.Compare(q.made), cmp.Compare(p.index, q.index), cmp.Compare(p.host, q.host))
}

// Order gives the nodes of the session in the order in which it was made. The answers are
// in the order of the hosts file. A node that did not answer has the session if the call
// that made it on another node lists the silent one. There may be none.
func Order(answers []Answer) []string {
	type member struct {
		node string
		at   position
	}
	var all []member
	listed := map[string]position{} // by the latest call that lists the node
	for _, a := range answers {
		if a.Origin == nil {
			continue
		}
		for i, name := range a.Origin.GetNodes() {
			at := position{made: made(a.Origin), index: i}
			if was, ok := listed[name]; !ok || was.made.Before(at.made) {
				listed[name] = at
			}
		}
	}
	for i, a := range answers {
		at, ok := position{}, false
		switch {
		case a.Silent:
			at, ok = listed[a.Node]
		case a.Origin != nil:
			at, ok = position{made: made(a.Origin), index: slices.Index(a.Origin.GetNodes(), a.Node)}, true
		}
		if at.host = i; ok {
			all = append(all, member{a.Node, at})
		}
	}
	slices.SortFunc(all, func(a, b member) int { return a.at.compare(b.at) })
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.node
	}
	return names
}

func made(o *nodev1.SessionOriginResponse) time.Time {
	if o.GetMade() == nil {
		return time.Time{}
	}
	return o.GetMade().AsTime()
}

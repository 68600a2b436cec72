package table_test

import (
	"testing"

	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// BenchmarkConfirmed is a put that a replica confirms, beside one that awaits none, whose replica
// follows.
func BenchmarkConfirmed(b *testing.B) {
	for _, w := range []way{ways[0], ways[2]} {
		for _, confirms := range []bool{false, true} {
			kind := map[bool]string{false: "asynchronous", true: "confirmed"}[confirms]
			b.Run(kind+"/"+w.name, func(b *testing.B) {
				nodes := vmmctest.Nodes(b, w.nodes)
				last := nodes[len(nodes)-1]
				var opts, replica []table.Option
				if confirms {
					opts = append(opts, table.AwaitReplicas(1, confirmName))
					replica = append(replica, table.Confirm(confirmName))
				}
				o := newTable[record](b, nodes[0].Open(b), 100, opts...)
				r, err := table.Replicate[key, record](within(b), last.Open(b), name, last.Name()+"/copy", replica...)
				if err != nil {
					b.Fatal(err)
				}
				defer r.Close()
				n := 0
				for b.Loop() {
					n++
					put(b, o, n%50, n)
				}
			})
		}
	}
}

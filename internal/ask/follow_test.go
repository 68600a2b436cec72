package ask

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// olderNode answers as a node does that knows neither streams nor tails, of a process that has
// ended.
type olderNode struct {
	nodev1connect.SessionServiceClient
	output  string
	missing int64
}

func (o *olderNode) ReadLog(_ context.Context, r *connect.Request[nodev1.ReadLogRequest]) (*connect.Response[nodev1.ReadLogResponse], error) {
	rest := o.output[min(r.Msg.GetOffset(), int64(len(o.output))):]
	b := rest[:min(len(rest), 100)]
	return connect.NewResponse(&nodev1.ReadLogResponse{Data: []byte(b), Done: b == ""}), nil
}

func (o *olderNode) Wait(context.Context, *connect.Request[nodev1.WaitRequest]) (*connect.Response[nodev1.WaitResponse], error) {
	return connect.NewResponse(&nodev1.WaitResponse{Process: &nodev1.Process{Ended: true, MissingBytes: o.missing, MissingWhy: "no space"}}), nil
}

func TestOutputOfAnOlderNode(t *testing.T) {
	all := strings.Repeat("a line\n", 100)
	for _, c := range []struct {
		name, output, want string
		tail               int
		missing            int64
	}{
		{"all", all, all, -1, 0},
		{"with a gap", all, all, -1, 77},
		{"nothing", "", "", -1, 0},
		{"the last lines", all + "end\n", "a line\nend\n", 2, 0},
		{"no line", all, "", 0, 0},
		{"more than there are", "a\nb\n", "a\nb\n", 3, 0},
		{"the last has no end", all + "end", "a line\nend", 2, 0},
	} {
		n := &Node{Name: "n1", Client: &olderNode{output: c.output, missing: c.missing}}
		var got strings.Builder
		lost, err := n.CopyLog(t.Context(), "s", 1, CopyOptions{Follow: true, Tail: c.tail}, func(toStderr bool, at time.Time, b []byte) error {
			if toStderr || !at.IsZero() {
				t.Errorf("%s: a stream and a time that the node has not named", c.name)
			}
			got.Write(b)
			return nil
		})
		if err != nil || got.String() != c.want || lost.Bytes != c.missing {
			t.Errorf("%s: %q, %+v, %v", c.name, got.String(), lost, err)
		}
	}
}

package ask

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// listingNode lists these processes, all of which have just begun but the first.
type listingNode struct {
	nodev1connect.SessionServiceClient
	pids  []uint32
	after uint32 // of the last call
}

func (l *listingNode) ListProcesses(_ context.Context, r *connect.Request[nodev1.ListProcessesRequest]) (*connect.Response[nodev1.ListProcessesResponse], error) {
	a := &nodev1.ListProcessesResponse{}
	l.after = r.Msg.GetAfter()
	for i, pid := range l.pids {
		begun := time.Now()
		if i == 0 {
			begun = begun.Add(-time.Hour)
		}
		if pid > l.after {
			a.Processes = append(a.Processes, &nodev1.Process{Pid: pid, Begun: timestamppb.New(begun)})
		}
	}
	return connect.NewResponse(a), nil
}

// Each process is found once, also one that is listed after another with a greater pid.
func TestNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listingNode{}
		all := (&Node{Name: "n1", Client: l}).Newcomers("s")
		for _, c := range []struct {
			wait  time.Duration
			pids  []uint32
			want  string
			after uint32
		}{
			{0, []uint32{10, 20, 40}, "[10 20 40]", 0},
			{time.Second, []uint32{10, 20, 30, 40}, "[30]", 10},
			{time.Second, []uint32{10, 20, 30, 40}, "[]", 10},
			{newcomerTime - time.Second, []uint32{10, 20, 30, 35, 40, 50}, "[35 50]", 10},
			{0, []uint32{10, 20, 30, 35, 40, 50}, "[]", 40},
			{newcomerTime, []uint32{50, 60}, "[60]", 40},
			{newcomerTime, []uint32{50, 60}, "[]", 50},
			{0, nil, "[]", 60},
		} {
			time.Sleep(c.wait)
			l.pids = c.pids
			rows, err := all.Next(t.Context())
			got := []uint32{}
			for _, p := range rows {
				got = append(got, p.PID)
			}
			if s := fmt.Sprint(got); err != nil || s != c.want || l.after != c.after {
				t.Errorf("of %v after %d: %s (%v), want %s after %d", c.pids, l.after, s, err, c.want, c.after)
			}
		}
	})
}

package contend

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/rpc"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// rpc is what Go programs use otherwise: gRPC and net/rpc, on a unix socket where both are on one
// machine. This program has both ends.
func (k *kit) rpc() []Job {
	network, addr := "tcp", k.at.Addr[place.Far]
	if k.shared() {
		network, addr = "unix", k.Raw+".sock"
	}
	var works []string
	for _, s := range small {
		works = append(works, fmt.Sprintf("call:%d:5000", s))
	}
	for _, s := range large {
		works = append(works, fmt.Sprintf("callbw:%d:%d", s, times(1<<27)(s)))
	}
	var jobs []Job
	for _, kind := range rpc.Kinds() {
		jobs = append(jobs, Job{Name: kind, run: func(ctx context.Context) ([]sample.Sample, error) {
			server := k.at.Command(ctx, place.Far, k.Self, "rpc-serve", kind, network, addr)
			out, err := k.served(ctx, server, func(at string) *exec.Cmd {
				return k.at.Command(ctx, place.Near, k.Self, append([]string{"rpc-call", kind, network, at}, works...)...)
			}, true)
			if err != nil {
				return nil, err
			}
			return k.parseWorks(kind, out)
		}})
	}
	return jobs
}

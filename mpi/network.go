package mpi

import (
	"context"
	"fmt"
	"time"
)

// Ping returns how long another rank takes to answer (the design of C-MPI calls it ping). Its program
// takes no part. The first one by module via includes the connection. A rank answers itself at once.
//
// Errors: [ErrRank]; [ErrProcFailed]; [ErrCanceled] when the context ends; [ErrOther] while 16 pings
// of the rank are not answered.
//
// Experimental: it may change in any release.
func (c *Comm) Ping(ctx context.Context, rank int) (time.Duration, error) {
	const call = "Comm.Ping"
	switch {
	case ctx == nil:
		return 0, fail(call, "ctx", ErrArg, "the context is nil")
	case rank < 0 || rank >= len(c.ranks):
		return 0, c.badRank(call, "rank", rank)
	}
	d, err := c.j.e.Ping(ctx, c.ranks[rank])
	return d, wrap(call, err)
}

// Network is what a communicator's ranks measure of the ways between them.
//
// Experimental: it may change in any release.
type Network struct {
	Latency   time.Duration // of a short packet one way
	Bandwidth float64       // bytes a second one way, while the other ranks send, too
}

// String is both in one line.
func (n Network) String() string {
	return fmt.Sprintf("latency %v, bandwidth %.0f MB/s", n.Latency, n.Bandwidth/1e6)
}

// What Network takes the best of, so that other load counts little.
const (
	networkPings = 20
	networkSends = 4
	networkBytes = 1 << 20
)

// Network measures latency and bandwidth from each rank to the next one, and returns the worst of all. It
// is a collective, and takes some milliseconds. A communicator of one rank has zeros.
//
// Experimental: it may change in any release.
func (c *Comm) Network(ctx context.Context) (Network, error) {
	const call = "Comm.Network"
	n := len(c.ranks)
	worst := make([]int64, 2) // of a ping, and of a message, in nanoseconds
	p := plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		if n == 1 {
			return nil
		}
		to, from := (c.rank+1)%n, (c.rank+n-1)%n
		out, in := make([]byte, networkBytes), make([]byte, networkBytes)
		for i := range networkPings {
			d, err := c.j.e.Ping(ctx, c.ranks[to])
			if err != nil {
				return wrap(call, err)
			}
			if i == 0 || int64(d) < worst[0] {
				worst[0] = int64(d)
			}
		}
		for i := range networkSends {
			start := time.Now()
			if err := r.exchange(ctx, out, to, in, from); err != nil {
				return err
			}
			if d := int64(time.Since(start)); i == 0 || d < worst[1] {
				worst[1] = d
			}
		}
		return nil
	}}
	if err := p.do(ctx); err != nil {
		return Network{}, err
	}
	all := make([]int64, 2)
	if err := allreducePlan(c, call, worst, all, Max[int64]()).do(ctx); err != nil || n == 1 {
		return Network{}, err
	}
	return Network{time.Duration(all[0] / 2), networkBytes / time.Duration(max(all[1], 1)).Seconds()}, nil
}

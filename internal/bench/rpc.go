package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// nullSize is how long a call without arguments is.
const nullSize = 40

// atOnce is how many long calls are under way at a time, where that is measured.
const atOnce = 4

// rpc is the time of a call that does nothing, and how fast arguments of size bytes go, by each
// transport of one server in the far process. All take turns.
func rpc(ctx context.Context, e *end, size int) (err error) {
	// a name, not a file, which may be too long
	j := job{Do: "rpcserve", Mode: fmt.Sprintf("@vmmc-bench-%d", os.Getpid()), Size: size}
	at, err := e.with(ctx, j, func() error { return nil })
	if err != nil {
		return err
	}
	defer func() {
		if _, cerr := e.with(ctx, job{Do: "rpcend"}, func() error { return nil }); err == nil {
			err = cerr
		}
	}()
	cs, err := e.dialRPC(ctx, j.Mode, size, int(at[0]), int(at[1]))
	defer func() {
		for _, c := range cs {
			_ = c.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := e.nullCalls(ctx, cs); err != nil {
		return err
	}
	return e.longCalls(ctx, cs, size)
}

// rpcClient is one, with the name of its transport.
type rpcClient struct {
	*vrpc.Client
	name string
}

// dialRPC makes a client for each transport. Those that were made are returned with the error too.
func (e *end) dialRPC(
	ctx context.Context, socket string, size, tcp, udp int,
) (cs []rpcClient, err error) {
	far := vmmc.ProcessID{Node: e.node, PID: e.pid}
	c, err := vrpc.DialVMMC(ctx, e.p, far, vrpc.Meeting)
	if err != nil {
		return nil, err
	}
	cs = append(cs, rpcClient{c, "vmmc"})
	host := e.farHost()
	for _, d := range [][2]string{
		{"tcp", net.JoinHostPort(host, strconv.Itoa(tcp))}, {"udp", net.JoinHostPort(host, strconv.Itoa(udp))}, {"unix", socket},
	} {
		if d[0] == "unix" && e.Path == Remote {
			continue
		}
		c, err := vrpc.Dial(ctx, d[0], d[1], vrpc.WithMaxReply(2*size+unitRPC))
		if err != nil {
			return cs, err
		}
		cs = append(cs, rpcClient{c, d[0]})
	}
	return cs, nil
}

// settling is how long calls are made before they are timed: two processes that have just woken
// each other are often on one processor, and the kernel takes as long at most to see to it, see
// [baseline.Memory.Settle]. The thread on which a server answers cannot be settled before its
// calls arrive.
const settling = 60 * time.Millisecond

func (e *end) settle(call func() error) error {
	for begin := unix.Monotonic(); e.settles && unix.Monotonic()-begin < int64(settling); {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// mostOfPeers is how many calls a peer makes in a round.
const mostOfPeers = 2000

// farHost is where the far end is reached.
func (e *end) farHost() string {
	if e.Path == Local {
		return "127.0.0.1"
	}
	return cmp.Or(e.Far.Host, "127.0.0.1")
}

// nullCalls measures the round trip of a call that does nothing, and by remote memory beside
// others'.
func (e *end) nullCalls(ctx context.Context, cs []rpcClient) (err error) {
	n := e.count(nullSize, e.often(10000, 2000), 1<<30)
	skip := n / 10
	clock := baseline.NewClock()
	var rs []Result
	var ours []probe
	for _, c := range cs {
		rs = append(rs, Result{What: "rpc", Variant: "null, " + c.name, Unit: Nanos, Count: n, LimitIs: e.limitIs("a raw shared flag, there and back", "raw TCP, there and back")})
		ours = append(ours, func(ctx context.Context, h *hist) (float64, error) {
			_, err := e.with(ctx, job{Do: "rpcround"}, func() error {
				each := h.skipping(skip)
				null := func() error { return c.Call(ctx, rpcProgram, 1, 0, xdr.Void{}, xdr.Void{}) }
				if err := e.settle(null); err != nil {
					return err
				}
				for range n + skip {
					start := clock.Now()
					if err := null(); err != nil {
						return err
					}
					each(clock.Since(start))
				}
				return nil
			})
			return 0, err
		})
	}
	peers, err := e.startAll(ctx, e.Peers, "call")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endAll(peers)) }()
	limit := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "pong", Raw: true, Size: nullSize, N: n + skip, First: e.next(n + skip)}
		_, err := e.with(ctx, j, func() error {
			each := h.skipping(skip)
			if e.Path == Remote {
				return e.tcp.Ping(ctx, nullSize, nullSize, j.N, each)
			}
			return e.raw.Ping(ctx, make([]byte, nullSize), j.At, j.First, j.N, func(d time.Duration) { each(2 * d) })
		})
		return 0, err
	}
	called := func(p *peer, h *hist) (float64, error) {
		return 0, p.calls(min(n, mostOfPeers), min(skip, mostOfPeers/10), h)
	}
	return e.besidePeers(ctx, rs, ours, limit, peers, called, 1)
}

// longCalls measures arguments of size bytes, which the procedure sees where they have arrived,
// beside sends of as much.
func (e *end) longCalls(ctx context.Context, cs []rpcClient, size int) error {
	n := e.count(size, 1<<14, e.often(256<<20, 64<<20))
	src := bytes.Repeat([]byte{1}, size) // as those of bandwidth
	var rs []Result
	var ours []probe
	add := func(c rpcClient, variant string, callers int) {
		rs = append(rs, Result{What: "rpc", Variant: variant, Size: size, Unit: Bandwidth, Count: n, LimitIs: "Send"})
		ours = append(ours, func(ctx context.Context, _ *hist) (float64, error) {
			var took time.Duration
			_, err := e.with(ctx, job{Do: "rpcround"}, func() error {
				if err := e.settle(func() error { return pourCalls(ctx, c, src, callers, callers) }); err != nil {
					return err
				}
				start := time.Now()
				err := pourCalls(ctx, c, src, n, callers)
				took = time.Since(start)
				return err
			})
			return float64(size) * float64(n) / (float64(took) / 1e3), err
		})
	}
	for _, c := range cs {
		if c.name == "udp" && size > 60<<10 { // no datagram is as long
			continue
		}
		add(c, "argument, "+c.name, 1)
	}
	add(cs[0], fmt.Sprintf("argument, vmmc, %d at once", atOnce), atOnce)
	limit := func(ctx context.Context, _ *hist) (float64, error) {
		return e.rate(ctx, job{Do: "sink", Size: size, N: n, First: e.next(2)}, size, func(j job) error {
			_, err := e.stream(ctx, src, 0, n, j.First+1, false)
			return err
		})
	}
	return e.compareAll(ctx, rs, ours, limit)
}

// pourCalls makes n calls, by so many callers.
func pourCalls(ctx context.Context, c rpcClient, src []byte, n, callers int) error {
	errs := make([]error, callers)
	var all sync.WaitGroup
	for k := range callers {
		all.Go(func() {
			args, res := (*octets)(&src), new(length)
			for i := k; i < n && errs[k] == nil; i += callers {
				if errs[k] = c.Call(ctx, rpcProgram, 1, 1, args, res); errs[k] == nil && int(*res) != len(src) {
					errs[k] = fmt.Errorf("%d of %d bytes have arrived", *res, len(src))
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

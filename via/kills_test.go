package via_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

const ranks = 16

// Sixteen processes on two nodes connect all with all as peers, post more SENDs than the other side
// has receives and the link has room, disconnect at random, and are killed at random and started
// again. In each process every descriptor is completed once, in the order of the posts. VMMC_VIA is
// how long that takes, 10 s without it.
func TestKills(t *testing.T) {
	d := 10 * time.Second
	if race || testing.Short() {
		d = 3 * time.Second
	}
	if s := os.Getenv("VMMC_VIA"); s != "" {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	nodes := vmmctest.Nodes(t, 2)
	stop := filepath.Join(t.TempDir(), "stop")
	begin := func(i int) *vmmctest.Proc {
		return vmmctest.Child(t, nodes[i%2], "rank", strconv.Itoa(i), strconv.FormatUint(r.Uint64(), 10), stop)
	}
	var procs [ranks]*vmmctest.Proc
	for i := range procs {
		procs[i] = begin(i)
	}
	kills := 0
	for start := time.Now(); time.Since(start) < d; kills++ {
		time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
		i := r.IntN(ranks)
		procs[i].Kill()
		procs[i] = begin(i)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	total := 0
	for i, p := range procs {
		completed, connections := 0, 0
		if _, err := fmt.Sscanf(p.Line(), "completed %d of %d", &completed, &connections); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
		total += completed
		if err := p.Wait(); err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if total == 0 {
		t.Error("nothing was completed")
	}
	t.Logf("%d kills; the processes that were left have completed %d descriptors", kills, total)
}

// rank is a child of TestKills: its number, a seed, and the file that ends it. It prints how many
// descriptors were completed, of how many connections.
func rank(ctx context.Context, p *vmmc.Process, args ...string) error {
	me, _ := strconv.Atoi(args[0])
	seed, _ := strconv.ParseUint(args[1], 10, 64)
	ctx, end := context.WithCancel(ctx)
	defer end()
	n, err := via.Open(p, "nic0")
	if err != nil {
		return err
	}
	n.OnError(func(via.AsyncError) {}) // of connections that end, and SENDs without a receive
	tag, err := n.NewTag()
	if err != nil {
		return err
	}
	mem, err := n.Register(make([]byte, memSize), via.MemoryAttributes{Tag: tag})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var failures []error
	completed, connections := 0, 0
	for other := range ranks {
		if other == me {
			continue
		}
		level := levels[(me+other)%len(levels)]
		vi, err := n.NewVI(via.VIAttributes{Level: level, MaxTransferSize: 1 << 20, Tag: tag}, nil, nil)
		if err != nil {
			return err
		}
		v := &modelVI{VI: vi, mem: mem, failf: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			failures = append(failures, fmt.Errorf(format, args...))
		}}
		host, err := n.HostByName(fmt.Sprint("n", other%2+1), 0)
		if err != nil {
			return err
		}
		local := via.Address{Host: n.Attributes().Address, Discriminator: fmt.Sprint("rank ", me)}
		remote := via.Address{Host: host, Discriminator: fmt.Sprint("rank ", other)}
		r := rand.New(rand.NewPCG(seed, uint64(other)))
		all.Go(func() {
			count := meet(ctx, v, r, local, remote)
			mu.Lock()
			defer mu.Unlock()
			completed += v.completed
			connections += count
		})
	}
	for {
		if _, err := os.Stat(args[2]); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
	all.Wait()
	if err := errors.Join(append(failures, n.Close())...); err != nil {
		fmt.Println("failed:", strings.ReplaceAll(err.Error(), "\n", "; "))
		return err
	}
	fmt.Printf("completed %d of %d\n", completed, connections)
	return nil
}

// meet connects a VI with its peer again and again until the context ends, and returns how often it
// was.
func meet(ctx context.Context, v *modelVI, r *rand.Rand, local, remote via.Address) (connections int) {
	for ctx.Err() == nil {
		for range r.IntN(3) { // before the connection; none is as good
			v.posts(r, true)
		}
		if err := v.ConnectPeer(ctx, local, remote); err != nil {
			if ctx.Err() == nil {
				v.failf("request: %v", err)
			}
			break
		}
		if _, err := v.ConnectPeerWait(context.Background()); err != nil { // it ends with ctx
			if ctx.Err() == nil {
				v.failf("peer: %v", err)
			}
			break
		}
		connections++
		for range r.IntN(60) {
			v.posts(r, r.IntN(3) == 0)
			v.takes()
			if v.State() != via.Connected || len(v.sends)+len(v.recvs) > 900 {
				break
			}
		}
		if r.IntN(2) == 0 { // otherwise the other side does, or all is taken
			deadline := time.Now().Add(time.Duration(r.IntN(20)) * time.Millisecond)
			for time.Now().Before(deadline) && v.State() == via.Connected {
				v.takes()
				time.Sleep(time.Millisecond)
			}
		}
		if err := v.Disconnect(); err != nil {
			v.failf("disconnect: %v", err)
		}
		v.takesAll()
	}
	if err := v.Disconnect(); err != nil { // flushes receives that were posted before
		v.failf("disconnect: %v", err)
	}
	v.takesAll()
	if err := v.Destroy(); err != nil {
		v.failf("destroy: %v", err)
	}
	return connections
}

package integration

import (
	"context"
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("several", child(several))
	testutil.RegisterRole("pour", child(pour))
}

// How many programs, and processes in each, are there when the daemon is restarted.
const (
	programs  = 100
	processes = 1
)

// several opens processes that export a buffer each, writes their pids into buffer 1 of the process
// given by node and pid, from a place on, and stays for as long as that process does.
func several(ctx context.Context, p *vmmc.Process, args []string) error {
	node, pid, err := target(p, args[0], args[1])
	if err != nil {
		return err
	}
	place, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	board, err := p.Import(ctx, node, pid, 1)
	if err != nil {
		return err
	}
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	var e *vmmc.Export
	for i := range processes {
		q, mem := p, m.Bytes()
		if i > 0 {
			if q, err = vmmc.Open(ctx); err != nil {
				return err
			}
			defer q.Close()
			mem = make([]byte, 64)
		}
		x, err := q.Export(1, mem)
		if err != nil {
			return err
		}
		if i == 0 {
			e = x
		}
		if err := board.Send(ctx, binary.LittleEndian.AppendUint32(nil, uint32(q.PID())), 4*(place+i)); err != nil {
			return err
		}
	}
	w, err := e.Word(4092)
	if err != nil {
		return err
	}
	if _, err = board.WaitWord(ctx, w, 0); ctx.Err() == nil {
		return nil // the board is gone
	}
	return err
}

// pour sends numbers to buffer 2 of a process, one after another, until its exporter is gone.
func pour(ctx context.Context, p *vmmc.Process, args []string) error {
	node, pid, err := target(p, args[0], args[1])
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, node, pid, 2)
	if err != nil {
		return err
	}
	at, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	for i := uint32(1); ; i++ {
		if err := im.Send(ctx, binary.LittleEndian.AppendUint32(nil, i), at); err != nil {
			return nil // it is gone
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// A daemon with 100 processes, half of them of programs that it has spawned, is killed and started
// again while others send: it serves all of them soon, and the sends go on all the while.
func TestFullServiceAfterARestart(t *testing.T) {
	cl := up(t, 2, nil, nil)
	p := join(t, cl, 0)
	m, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(1, m.Bytes()); err != nil {
		t.Fatal(err)
	}
	flows, err := p.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(2, flows.Bytes()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	for i := range programs {
		args := []string{"n0", number(p.PID()), strconv.Itoa(i * processes)}
		if i%2 == 0 {
			spawn(t, cl, 0, "several", args...)
			continue
		}
		argv := testutil.Argv(t, "several", args...)
		if _, err := p.Spawn(ctx, p.Node(), argv[0], argv[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	flow := func(at int) uint32 { return binary.LittleEndian.Uint32(flows.Bytes()[at:]) }
	spawn(t, cl, 0, "pour", "n0", number(p.PID()), "0")
	spawn(t, cl, 1, "pour", "n0", number(p.PID()), "2048")
	pids := make([]vmmc.PID, programs*processes)
	if err := p.WaitUntil(ctx, func() bool {
		for i := range pids {
			pids[i] = vmmc.PID(binary.LittleEndian.Uint32(m.Bytes()[4*i:]))
			if pids[i] == 0 {
				return false
			}
		}
		return flow(0) > 0 && flow(2048) > 0
	}); err != nil {
		t.Fatal(err)
	}

	var worst [2]atomic.Int64 // the longest time in which nothing of a flow came
	watching, over := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		at := [2]time.Time{time.Now(), time.Now()}
		was := [2]uint32{}
		for watching.Err() == nil {
			for k, off := range []int{0, 2048} {
				if n := flow(off); n != was[k] {
					was[k], at[k] = n, time.Now()
				}
				worst[k].Store(max(worst[k].Load(), int64(time.Since(at[k]))))
			}
			time.Sleep(time.Millisecond)
		}
	}()
	const restarts = 3
	for range restarts {
		before := [2]uint32{flow(0), flow(2048)}
		kill(t, cl.nodes[0])
		for k, off := range []int{0, 2048} { // without any daemon
			if err := p.WaitUntil(ctx, func() bool { return flow(off) > before[k]+20 }); err != nil {
				t.Fatalf("flow %d stands at %d: %v", k, flow(off), err)
			}
		}
		begun := time.Now()
		cl.start(t, 0, nil)
		started := time.Since(begun)
		q := join(t, cl, 0)
		for _, pid := range pids {
			im, err := q.Import(ctx, q.Node(), pid, 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := im.Close(); err != nil {
				t.Fatal(err)
			}
		}
		e, err := p.Export(3, make([]byte, 64))
		if err != nil {
			t.Fatal(err)
		}
		im, err := q.Import(ctx, p.Node(), p.PID(), 3)
		if err != nil {
			t.Fatal(err)
		}
		full := time.Since(begun)
		t.Logf("the daemon was up after %v, and served %d processes fully after %v", started.Round(time.Millisecond), len(pids), full.Round(time.Millisecond))
		if full > testutil.Slow*10*250*time.Millisecond {
			t.Errorf("full service after %v", full)
		}
		if err := im.Send(ctx, []byte{1, 0, 0, 0}, 0); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	over()
	<-watched
	t.Logf("nothing came on one node for at most %v, between nodes for %v", time.Duration(worst[0].Load()).Round(time.Millisecond), time.Duration(worst[1].Load()).Round(time.Millisecond))
}

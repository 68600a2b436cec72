package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("vmmcd", func() int {
		os.Args = append([]string{"vmmcd"}, testutil.Args()...)
		go answer(func() int64 { return 0 })
		return serve.Execute(serve.Command("vmmcd"))
	})
	testutil.RegisterRole("host", func() int { return status(host()) })
	testutil.RegisterRole("guest", func() int { return status(guest()) })
}

func status(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const (
	lasting = 1 // mapped on the host's node
	heap    = 2 // a slice of the Go heap: on the stream
	passing = 3 // it comes and goes
	size    = 1 << 20
)

// host exports buffers, one of which comes and goes.
func host() error {
	p, err := vmmc.Open(context.Background())
	if err != nil {
		return err
	}
	m, err := p.Alloc(size)
	if err != nil {
		return err
	}
	var notes atomic.Int64
	handler := vmmc.WithHandler(func(vmmc.Notification) { notes.Add(1) })
	if _, err := p.Export(lasting, m.Bytes(), handler); err != nil {
		return err
	}
	if _, err := p.Export(heap, make([]byte, size), handler); err != nil {
		return err
	}
	fmt.Println(p.PID())
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var failed error
	var rounds atomic.Int64
	all.Go(func() {
		for ctx.Err() == nil && failed == nil {
			failed = comeAndGo(ctx, p)
			rounds.Add(1)
		}
	})
	answer(func() int64 { return rounds.Load() + notes.Load() })
	stop()
	all.Wait()
	return errors.Join(failed, p.Close())
}

func comeAndGo(ctx context.Context, p *vmmc.Process) error {
	m, err := p.Alloc(16 << 10)
	if err != nil {
		return err
	}
	e, err := p.Export(passing, m.Bytes())
	if err != nil {
		return err
	}
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
	if err := e.Close(); err != nil {
		return err
	}
	return m.Close()
}

// answer tells of this process whenever it is asked, until its input ends: goroutines, bytes of the
// heap that are in use, and what it has done; or where the heap is.
func answer(done func() int64) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		debug.FreeOSMemory() // what is held, not what is yet to be collected
		if in.Text() != "" {
			fmt.Println(sayHeap())
			continue
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(runtime.NumGoroutine(), m.HeapAlloc, done())
	}
}

// guest uses the host's buffers. Args: node and pid of the host, and how many processes are to
// come and go before: a node remembers so many of those that have ended, and no more.
func guest() error {
	pid, err := strconv.ParseUint(testutil.Args()[1], 10, 32)
	if err != nil {
		return err
	}
	many, err := strconv.Atoi(testutil.Args()[2])
	if err != nil {
		return err
	}
	for range many {
		q, err := vmmc.Open(context.Background())
		if err != nil {
			return err
		}
		if err := q.Close(); err != nil {
			return err
		}
	}
	p, err := vmmc.Open(context.Background())
	if err != nil {
		return err
	}
	node, err := p.NameToNode(testutil.Args()[0])
	if err != nil {
		return err
	}
	g := &visitor{p: p, node: node, pid: vmmc.PID(pid)}
	ctx, stop := context.WithCancel(context.Background())
	errs := make(chan error, 4)
	for _, f := range []func(context.Context) error{g.traffic(lasting), g.traffic(heap), g.imports, g.links} {
		go func() {
			err := f(ctx)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			errs <- err
		}()
	}
	fmt.Println(p.PID())
	answer(g.done.Load)
	stop()
	for range cap(errs) {
		err = errors.Join(err, <-errs)
	}
	return errors.Join(err, p.Close())
}

// visitor is a guest's way to its host.
type visitor struct {
	p    *vmmc.Process
	node vmmc.NodeID
	pid  vmmc.PID
	done atomic.Int64
}

// pause keeps the machine from being busy with this alone.
func pause() { time.Sleep(time.Millisecond) }

// traffic is all operations on a buffer that lasts.
func (g *visitor) traffic(id uint32) func(context.Context) error {
	return func(ctx context.Context) error {
		im, err := g.p.Import(context.Background(), g.node, g.pid, id)
		if err != nil {
			return err
		}
		r := rand.New(rand.NewPCG(1, uint64(id)))
		b, got := make([]byte, size/2), make([]byte, size/2)
		for ctx.Err() == nil {
			for range 16 {
				n := 4 << r.IntN(10)
				if r.IntN(100) == 0 {
					n = size / 2
				}
				if err := operation(im, r, b[:n], got[:n]); err != nil {
					return err
				}
				g.done.Add(1)
			}
			pause()
		}
		return im.Close()
	}
}

func operation(im *vmmc.Import, r *rand.Rand, b, got []byte) error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	switch r.IntN(6) {
	case 0:
		return im.SendNotify(ctx, b, 64)
	case 1:
		q, err := im.SendAsync(ctx, b, 64)
		if err != nil {
			return err
		}
		return q.Wait(ctx)
	case 2:
		_, err := im.FetchAdd64(ctx, 0, 1)
		return err
	case 3:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if err := im.Send(ctx, b, size/2); err != nil {
			return err
		}
		if err := im.Get(ctx, got, size/2); err != nil {
			return err
		}
		return nil // the other guest writes there, too
	case 4:
		return im.Get(ctx, got, 64)
	}
	return im.Send(ctx, b, 64)
}

// imports has imports made and closed, of a buffer that comes and goes, too.
func (g *visitor) imports(ctx context.Context) error {
	for ctx.Err() == nil {
		for _, id := range []uint32{lasting, heap, passing} {
			im, err := g.p.Import(context.Background(), g.node, g.pid, id)
			if err != nil {
				return err
			}
			err = im.Send(context.Background(), make([]byte, 64), 128)
			if err != nil && (id != passing || !errors.Is(err, vmmc.ErrRevoked)) {
				return err
			}
			if err := im.Close(); err != nil {
				return err
			}
			g.done.Add(1)
		}
		pause()
	}
	return nil
}

// links has processes join and leave, each with a link of its own.
func (g *visitor) links(ctx context.Context) error {
	for ctx.Err() == nil {
		q, err := vmmc.Open(context.Background())
		if err != nil {
			return err
		}
		im, err := q.Import(context.Background(), g.node, g.pid, lasting)
		if err != nil {
			return err
		}
		if err := im.SendNotify(context.Background(), make([]byte, 64), 192); err != nil {
			return err
		}
		if err := q.Close(); err != nil {
			return err
		}
		g.done.Add(1)
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

package vmmc_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/count"
	"github.com/vmmc-go/vmmc/node"
)

// hotPaths are the calls that a message takes. What they cost is asserted: TestHotPathAllocations
// has their allocations, TestInstructions their instructions.
func (p *hotPair) hotPaths(ctx context.Context) []count.Path {
	var small [8]byte
	var paths []count.Path
	add := func(name string, before, run func() error) {
		paths = append(paths, count.Path{Name: name, Before: before, Run: run})
	}
	for _, n := range []int{4, 8, 64, 4096} {
		buf := make([]byte, n)
		add(fmt.Sprintf("mapped Send %d", n), nil, func() error { return p.mapped.Send(ctx, buf, 0) })
	}
	for _, n := range []int{8, 64} {
		buf := make([]byte, n)
		add(fmt.Sprintf("mapped Get %d", n), nil, func() error { return p.mapped.Get(ctx, buf, 0) })
	}
	at := p.mapped.Addr()
	add("Process.Send 8", nil, func() error { return p.a.Send(ctx, small[:], at) })
	for _, im := range []*vmmc.Import{p.mapped, p.stream} {
		last, err := im.SendAsync(ctx, small[:], 1<<10)
		add(im.Path()+" SendAsync 8", func() error {
			if err != nil {
				return err
			}
			return last.Wait(ctx)
		}, func() error {
			last, err = im.SendAsync(ctx, small[:], 1<<10)
			return err
		})
	}
	add("mapped SendNotify 8", p.handled, func() error { p.posted = true; return p.mapped.SendNotify(ctx, small[:], 0) })
	add("Word.Wait for what is there", func() error { return p.arrive(ctx) }, func() error { return p.await(ctx, p.n-1) })
	add("stream Send 64, sending", func() error { return p.await(ctx, p.n-1) }, func() error { return p.send(ctx) })
	add("stream Send 64, receiving", func() error { return p.underWay(ctx) }, func() error { return p.await(ctx, p.n-1) })
	return paths
}

// hotPair is two processes of one node in this program. One imports two buffers of the other, one by
// each way.
type hotPair struct {
	a              *vmmc.Process
	mapped, stream *vmmc.Import
	message        [64]byte
	n              uint32    // messages sent on the stream
	word           vmmc.Word // has the number of the last one that arrived
	ran            chan bool
	posted         bool
	clean          []func()
}

func newHotPair(ctx context.Context) (p *hotPair, err error) {
	p = &hotPair{ran: make(chan bool, 1)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	n, err := node.Start()
	if err != nil {
		return nil, err
	}
	p.clean = append(p.clean, n.Close)
	join := func() (o *vmmc.Process) {
		if err == nil {
			if o, err = vmmc.Open(ctx, vmmc.WithSocket(n.Socket())); err == nil {
				p.clean = append(p.clean, func() { o.Close() })
			}
		}
		return o
	}
	p.a = join()
	b := join()
	if err != nil {
		return nil, err
	}
	if p.mapped, _, err = p.share(ctx, b, 1); err != nil {
		return nil, err
	}
	e := (*vmmc.Export)(nil)
	if p.stream, e, err = p.share(ctx, b, 2, vmmc.Unmapped()); err == nil {
		p.word, err = e.Word(len(p.message) - 4)
	}
	if err == nil && (p.mapped.Path() != "mapped" || p.stream.Path() != "stream") {
		err = fmt.Errorf("the paths are %s and %s", p.mapped.Path(), p.stream.Path())
	}
	return p, err
}

// share has b export a buffer, and a import it.
func (p *hotPair) share(ctx context.Context, b *vmmc.Process, id uint32, opts ...vmmc.ExportOption) (*vmmc.Import, *vmmc.Export, error) {
	m, err := b.Alloc(1 << 20)
	if err != nil {
		return nil, nil, err
	}
	e, err := b.Export(id, m.Bytes(), append(opts, vmmc.WithHandler(func(vmmc.Notification) { p.ran <- true }))...)
	if err != nil {
		return nil, nil, err
	}
	im, err := p.a.Import(ctx, b.Node(), b.PID(), id)
	return im, e, err
}

func (p *hotPair) close() {
	for _, f := range slices.Backward(p.clean) {
		f()
	}
}

// handled returns when the notification that was posted is over.
func (p *hotPair) handled() error {
	if p.posted {
		p.posted = !<-p.ran
	}
	return nil
}

// send puts the next message on the stream, and await is its arrival: the word is not old then.
func (p *hotPair) send(ctx context.Context) error {
	p.n++
	binary.LittleEndian.PutUint32(p.message[60:], p.n)
	return p.stream.Send(ctx, p.message[:], 0)
}

func (p *hotPair) await(ctx context.Context, old uint32) error {
	_, err := p.word.Wait(ctx, old)
	return err
}

// underWay sends a message that nobody has received yet.
func (p *hotPair) underWay(ctx context.Context) error {
	for {
		if err := p.send(ctx); err != nil || p.word.Load() != p.n {
			return err
		}
	}
}

func (p *hotPair) arrive(ctx context.Context) error {
	if err := p.send(ctx); err != nil {
		return err
	}
	return p.await(ctx, p.n-1)
}

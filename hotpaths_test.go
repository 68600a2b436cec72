package vmmc_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/instrcount"
	"github.com/vmmc-go/vmmc/manual"
	"github.com/vmmc-go/vmmc/node"
)

// A copy of this length takes one instruction with some processors and hundreds with others, as the
// runtime chooses by their maker: it is counted by itself, and asserted is what a call takes beyond
// it.
const (
	copied  = 4096 - 4 // the last word is stored by itself
	copying = "a copy of 4092"
	copies  = "mapped Send 4096"
)

// hotPaths are the calls that a message takes. What they cost is asserted: TestHotPathAllocations
// has their allocations, TestInstructions their instructions.
func (p *hotPair) hotPaths(ctx context.Context) []instrcount.Path {
	var small [8]byte
	var paths []instrcount.Path
	add := func(name string, before, run func() error) {
		paths = append(paths, instrcount.Path{Name: name, Before: before, Run: run})
	}
	for _, n := range []int{4, 8, 64, 4096} {
		buf := make([]byte, n)
		add(fmt.Sprintf("mapped Send %d", n), nil, func() error { return p.mapped.Send(ctx, buf, 0) })
	}
	add("mapped SendSignal 64", nil, func() error { return p.mapped.SendSignal(ctx, p.far.message[:], 0, 1, 64) })
	dst, src := make([]byte, copied), make([]byte, copied)
	add(copying, nil, func() error { copy(dst, src); return nil })
	for _, n := range []int{8, 64} {
		buf := make([]byte, n)
		add(fmt.Sprintf("mapped Get %d", n), nil, func() error { return p.mapped.Get(ctx, buf, 0) })
	}
	var space manual.DestSpace
	at, err := space.Add(p.mapped)
	add("DestSpace.Send 8", func() error { return err }, func() error { return space.Send(ctx, small[:], at) })
	for _, im := range []*vmmc.Import{p.mapped, p.stream.im} {
		last, err := im.SendAsync(ctx, small[:], 1<<10)
		add(im.Path().String()+" SendAsync 8", func() error {
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
	add("Word.Wait for what is there", p.stream.arrived(ctx), func() error { return p.stream.await(ctx, p.stream.n-1) })
	add("Export.Word and Wait for what is there", p.stream.arrived(ctx), func() error {
		w, err := p.stream.export.Word(len(p.stream.message) - 4)
		if err == nil {
			_, err = w.Wait(ctx, p.stream.n-1)
		}
		return err
	})
	add("WaitAny of what is there", p.stream.arrived(ctx), func() error {
		_, err := p.stream.process.WaitAny(ctx, vmmc.Watch{Word: p.stream.word, Old: p.stream.n - 1})
		return err
	})
	add("WaitNotified for what is there", func() error { return p.handled() }, func() error {
		_, err := p.stream.export.WaitNotified(ctx, p.stream.export.Notified()+1)
		return err
	})
	looks := 0
	add("WaitUntil of 3 looks, no links", func() error { looks = 0; return nil }, func() error {
		return p.apart.WaitUntil(ctx, func() bool { looks++; return looks == 3 })
	})
	for _, l := range []*lane{&p.stream, &p.far} {
		add(l.name+" Send 64, sending", func() error { return l.await(ctx, l.n-1) }, func() error { return l.send(ctx) })
		add(l.name+" Send 64, receiving", func() error {
			if err := l.settle(ctx); err != nil {
				return err
			}
			return l.underWay(ctx)
		}, func() error { return l.await(ctx, l.n-1) })
		add(l.name+" SendSignal 60, sending", func() error { return l.await(ctx, l.n-1) }, func() error { return l.sendSignal(ctx) })
	}
	l := &p.stream
	add("stream SendNotify 64, receiving", func() error {
		if err := p.handled(); err != nil {
			return err
		}
		if err := l.settle(ctx); err != nil {
			return err
		}
		p.posted = true
		return l.sendNotify(ctx)
	}, func() error { return l.await(ctx, l.n-1) })
	add("stream GetAsync 64", func() error { return l.answered(ctx) }, func() error { return l.get(ctx) })
	add("stream GetAsync 64, answering", func() error { return l.request(ctx) }, func() error { return poll(ctx, l.process) })
	add("stream GetAsync 64, receiving", func() error {
		if err := l.request(ctx); err != nil {
			return err
		}
		return poll(ctx, l.process)
	}, func() error { return l.answered(ctx) })
	return paths
}

// hotPair is two processes of one node in this program, of which one imports two buffers of the
// other, one by each way; and two of two nodes.
type hotPair struct {
	a      *vmmc.Process
	mapped *vmmc.Import
	stream lane
	far    lane
	apart  *vmmc.Process // has no links
	ran    chan bool
	posted bool
	clean  []func()
}

// lane is a buffer to which messages of 64 bytes go one after another.
type lane struct {
	name     string
	im       *vmmc.Import
	importer *vmmc.Process
	process  *vmmc.Process // which exports the buffer
	export   *vmmc.Export
	message  [64]byte
	n        uint32    // messages sent
	word     vmmc.Word // has the number of the last one that arrived
	answer   [64]byte
	asked    vmmc.Request // the last get
	open     bool         // it was not waited for
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
	join := func(socket string) (o *vmmc.Process) {
		if err == nil {
			if o, err = vmmc.Open(ctx, vmmc.WithSocket(socket)); err == nil {
				p.clean = append(p.clean, func() { o.Close() })
			}
		}
		return o
	}
	dir, err := os.MkdirTemp("", "vmmc-hot-")
	if err != nil {
		return nil, err
	}
	p.clean = append(p.clean, func() { _ = os.RemoveAll(dir) })
	sockets, clean, err := twoNodes(dir, false)
	p.clean = append(p.clean, clean)
	if err != nil {
		return nil, err
	}
	p.a = join(n.Socket())
	b := join(n.Socket())
	c := join(sockets[0])
	d := join(sockets[1])
	p.apart = join(n.Socket())
	if err != nil {
		return nil, err
	}
	if p.mapped, _, err = p.share(ctx, p.a, b, 1); err != nil {
		return nil, err
	}
	if err := p.stream.join(ctx, p, p.a, b, vmmc.Unmapped()); err != nil {
		return nil, err
	}
	if err := p.far.join(ctx, p, c, d); err != nil {
		return nil, err
	}
	p.stream.name, p.far.name = "stream", "between nodes"
	if p.mapped.Path() != vmmc.PathMapped || p.stream.im.Path() != vmmc.PathStream {
		err = fmt.Errorf("the paths are %s and %s", p.mapped.Path(), p.stream.im.Path())
	}
	return p, err
}

// share has b export a buffer, and a import it.
func (p *hotPair) share(ctx context.Context, a, b *vmmc.Process, id uint32, opts ...vmmc.ExportOption) (*vmmc.Import, *vmmc.Export, error) {
	m, err := b.Alloc(1 << 20)
	if err != nil {
		return nil, nil, err
	}
	e, err := b.Export(id, m.Bytes(), append(opts, vmmc.WithHandler(func(vmmc.Notification) { p.ran <- true }))...)
	if err != nil {
		return nil, nil, err
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), id)
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

func (l *lane) join(ctx context.Context, p *hotPair, a, b *vmmc.Process, opts ...vmmc.ExportOption) error {
	im, e, err := p.share(ctx, a, b, 2, opts...)
	if err != nil {
		return err
	}
	l.im, l.importer, l.process, l.export = im, a, b, e
	l.word, err = e.Word(len(l.message) - 4)
	return err
}

// send puts the next message on its way, and await is its arrival: the word is not old then.
func (l *lane) send(ctx context.Context) error { return l.im.Send(ctx, l.next(), 0) }

// sendSignal is send of the number as a signal of what precedes it.
func (l *lane) sendSignal(ctx context.Context) error {
	l.next()
	return l.im.SendSignal(ctx, l.message[:60], 0, l.n, 60)
}

// sendNotify is send with a notification.
func (l *lane) sendNotify(ctx context.Context) error { return l.im.SendNotify(ctx, l.next(), 0) }

func (l *lane) next() []byte {
	l.n++
	binary.LittleEndian.PutUint32(l.message[60:], l.n)
	return l.message[:]
}

func (l *lane) await(ctx context.Context, old uint32) error {
	_, err := l.word.Wait(ctx, old)
	return err
}

// get begins a get, and answered waits for the last one.
func (l *lane) get(ctx context.Context) (err error) {
	l.asked, err = l.im.GetAsync(ctx, l.answer[:], 0)
	l.open = err == nil
	return err
}

func (l *lane) answered(ctx context.Context) error {
	if !l.open {
		return nil
	}
	l.open = false
	return l.asked.Wait(ctx)
}

// request has the request of a get be in flight.
func (l *lane) request(ctx context.Context) error {
	if err := l.answered(ctx); err != nil {
		return err
	}
	if err := l.settle(ctx); err != nil {
		return err
	}
	if err := l.get(ctx); err != nil {
		return err
	}
	return poll(ctx, l.importer)
}

// poll has p look at its links once, and write what it has coalesced.
func poll(ctx context.Context, p *vmmc.Process) error {
	looks := 0
	return p.WaitUntil(ctx, func() bool { looks++; return looks > 2 })
}

// settle waits for all that was sent, twice, looking at the link: that leaves it at rest, and the
// background does not receive what comes next.
func (l *lane) settle(ctx context.Context) error {
	for range 2 {
		looks := 0
		if err := l.process.WaitUntil(ctx, func() bool { looks++; return looks > 1 && l.word.Load() == l.n }); err != nil {
			return err
		}
	}
	return nil
}

// underWay sends a message that is in flight when it returns.
func (l *lane) underWay(ctx context.Context) error {
	for {
		if err := l.send(ctx); err != nil || l.word.Load() != l.n {
			return err
		}
	}
}

// arrived sends a message, and waits for it.
func (l *lane) arrived(ctx context.Context) func() error {
	return func() error {
		if err := l.send(ctx); err != nil {
			return err
		}
		return l.await(ctx, l.n-1)
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/childproc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// NamesConfig says how many names there are besides those that are measured, and how often each
// operation is timed.
type NamesConfig struct {
	Names, Waiters int
	Count          int // of publications and look-ups
	Kills          int // of processes that have a name
}

// NamesResult is what one operation took.
type NamesResult struct {
	// publish, look-up, gone: from a kill until another process has the name, or round trip: the floor
	What     string `json:"what"`
	Where    string `json:"where"` // node, another node, cluster, unix socket
	Names    int    `json:"names"`
	Waiters  int    `json:"waiters"`
	Count    int    `json:"count"`
	MedianNS int64  `json:"median_ns"`
	P99NS    int64  `json:"p99_ns"`
	MostNS   int64  `json:"most_ns"`
}

// namesBench is a cluster of three nodes, with a process on each of two.
type namesBench struct {
	ctx         context.Context
	group       *childproc.Group
	conf        NamesConfig
	sockets     []string
	near, far   *vmmc.Process
	mem         *vmmc.Export // of near
	farMem      *vmmc.Export
	names, wait int // that are there
	out         []NamesResult
}

// RunNames measures. What it started has ended when it returns.
func RunNames(ctx context.Context, c NamesConfig, log io.Writer) (out []NamesResult, err error) {
	f := childproc.New(ctx, "benchmark", log)
	defer f.End()
	ctx = f.Context()
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	b := &namesBench{ctx: ctx, group: f, conf: c}
	if b.sockets, err = f.Cluster(3); err != nil {
		return nil, err
	}
	open := func(socket string) (*vmmc.Process, *vmmc.Export, error) {
		p, err := vmmc.Open(ctx, vmmc.WithSocket(socket))
		if err != nil {
			return nil, nil, err
		}
		e, err := p.Export(boardID, make([]byte, 4096))
		if err != nil {
			return nil, nil, errors.Join(err, p.Close())
		}
		return p, e, nil
	}
	if b.near, b.mem, err = open(b.sockets[0]); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.near.Close()) }()
	if b.far, b.farMem, err = open(b.sockets[1]); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.far.Close()) }()
	if err := b.roundTrip(); err != nil {
		return nil, err
	}
	if err := b.measure(); err != nil {
		return nil, err
	}
	leave, err := b.crowd()
	if err != nil {
		return nil, err
	}
	defer leave()
	return b.out, b.measure()
}

// measure measures all operations beside the names that are there.
func (b *namesBench) measure() error {
	for _, s := range []struct {
		where, publish, find string
		finder               *vmmc.Process
	}{
		{"node", "bench", "bench", b.far},
		{"another node", "bench", b.far.Node().String() + "/bench", b.near},
		{"cluster", "/bench", "/bench", b.near},
	} {
		if err := b.publish(s.where, s.publish); err != nil {
			return err
		}
		if err := b.find(s.where, s.publish, s.find, s.finder); err != nil {
			return err
		}
	}
	for _, s := range []struct{ where, name string }{{"node", "gone"}, {"cluster", "/gone"}} {
		if err := b.gone(s.where, s.name); err != nil {
			return err
		}
	}
	return nil
}

// record adds a result. The first time is of what is made once, and does not count.
func (b *namesBench) record(what, where string, times []time.Duration) {
	times = times[1:]
	slices.Sort(times)
	n := len(times)
	b.out = append(b.out, NamesResult{
		What: what, Where: where, Names: b.names, Waiters: b.wait, Count: n,
		MedianNS: int64(times[n/2]), P99NS: int64(times[n*99/100]), MostNS: int64(times[n-1]),
	})
}

// Sizes of a request to publish a name as short as the benchmark's, and of its answer.
const (
	publishBytes   = 96
	publishedBytes = 18
)

// roundTrip measures what no call to the daemon can be faster than: packets of the same sizes to
// another process and back over a unix socket of the same kind.
func (b *namesBench) roundTrip() (err error) {
	dir, err := os.MkdirTemp(env.TempDir(), "vmmc-benchmark-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	addr := &net.UnixAddr{Name: filepath.Join(dir, "echo"), Net: "unixpacket"}
	l, err := net.ListenUnix(addr.Net, addr)
	if err != nil {
		return err
	}
	defer l.Close()
	echo, err := b.group.Start(nil, Child, namesEcho, addr.Name)
	if err != nil {
		return err
	}
	defer echo.Kill()
	_ = l.SetDeadline(time.Now().Add(timeout.Control))
	c, err := l.AcceptUnix()
	if err != nil {
		return err
	}
	defer c.Close()
	request, answer := make([]byte, publishBytes), make([]byte, publishBytes)
	var times []time.Duration
	for range b.conf.Count + 1 {
		begun := time.Now()
		if _, err := c.Write(request); err != nil {
			return err
		}
		if _, err := c.Read(answer); err != nil {
			return err
		}
		times = append(times, time.Since(begun))
	}
	b.record("round trip", "unix socket", times)
	return nil
}

// namesEcho is the first argument of a process that answers packets until its peer has ended.
const namesEcho = "echo"

func runNamesEcho(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want a socket, have %q", args)
	}
	addr := &net.UnixAddr{Name: args[0], Net: "unixpacket"}
	c, err := net.DialUnix(addr.Net, nil, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	request, answer := make([]byte, publishBytes), make([]byte, publishedBytes)
	for {
		n, err := c.Read(request)
		if n == 0 || err != nil {
			return nil //nolint:nilerr // the peer has ended
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
	}
}

// publish measures the publication of an export that is there, on the exporter's node. A name is
// published on that node alone, so that there is none of another node.
func (b *namesBench) publish(where, name string) error {
	if where == "another node" {
		return nil
	}
	var times []time.Duration
	for range b.conf.Count + 1 {
		begun := time.Now()
		if err := b.farMem.PublishAs(b.ctx, name); err != nil {
			return err
		}
		times = append(times, time.Since(begun))
		if err := b.farMem.Unpublish(b.ctx, name); err != nil {
			return err
		}
	}
	b.record("publish", where, times)
	return nil
}

// find measures imports by name, over a link that is there.
func (b *namesBench) find(where, name, as string, p *vmmc.Process) error {
	owner := b.farMem
	if where == "node" { // between two processes of the node
		other, err := vmmc.Open(b.ctx, vmmc.WithSocket(b.sockets[1]))
		if err != nil {
			return err
		}
		defer other.Close()
		p = other
	}
	if err := owner.PublishAs(b.ctx, name); err != nil {
		return err
	}
	link, err := p.ImportName(b.ctx, as)
	if err != nil {
		return err
	}
	defer link.Close()
	if err := link.Get(b.ctx, make([]byte, 4), 0); err != nil {
		return err
	}
	var times []time.Duration
	for range b.conf.Count + 1 {
		begun := time.Now()
		im, err := p.ImportName(b.ctx, as)
		if err != nil {
			return err
		}
		times = append(times, time.Since(begun))
		if err := im.Close(); err != nil {
			return err
		}
	}
	b.record("look-up", where, times)
	return owner.Unpublish(b.ctx, name)
}

// gone measures from the kill of a process until another one has its name: on its node, or on
// another one if the name is the cluster's.
func (b *namesBench) gone(where, name string) error {
	e := b.mem
	if where == "cluster" {
		e = b.farMem
	}
	var times []time.Duration
	for range b.conf.Kills + 1 {
		owner, err := b.group.Start(nil, Child, namesMember, b.sockets[0], name)
		if err != nil {
			return err
		}
		im, err := b.near.ImportName(b.ctx, name) // waits for it
		if err != nil {
			return err
		}
		begun := time.Now()
		owner.Kill()
		for {
			if err = e.PublishAs(b.ctx, name); !errors.Is(err, vmmc.ErrNameTaken) {
				break
			}
		}
		if err != nil {
			return err
		}
		times = append(times, time.Since(begun))
		if err := errors.Join(im.Close(), e.Unpublish(b.ctx, name)); err != nil {
			return err
		}
	}
	b.record("gone", where, times)
	return nil
}

// ofExport is how many names an export has.
const ofExport = 16

// crowd has processes of one node publish names and wait for others, until what it returns is called.
func (b *namesBench) crowd() (_ func(), err error) {
	p, err := vmmc.Open(b.ctx, vmmc.WithSocket(b.sockets[1]))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(b.ctx)
	var waiters sync.WaitGroup
	leave := func() {
		stop()
		waiters.Wait()
		_ = p.Close()
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	page := os.Getpagesize()
	m, err := p.Alloc((b.conf.Names/ofExport + 1) * page)
	if err != nil {
		return nil, err
	}
	var e *vmmc.Export
	for i := range b.conf.Names {
		if n := i / ofExport; i%ofExport == 0 {
			if e, err = p.Export(uint32(n)+1, m.Bytes()[n*page:][:page]); err != nil {
				return nil, err
			}
		}
		if err := e.PublishAs(b.ctx, fmt.Sprint("crowd", i)); err != nil {
			return nil, err
		}
	}
	for i := range b.conf.Waiters {
		waiters.Go(func() { _, _ = p.ImportName(ctx, fmt.Sprint("none", i)) })
	}
	b.names, b.wait = b.conf.Names, b.conf.Waiters
	return leave, nil
}

// namesMember is the first argument of a process that has a name until it is killed.
const namesMember = "names"

func runNamesMember(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want a socket and a name, have %q", args)
	}
	p, err := vmmc.Open(ctx, vmmc.WithSocket(args[0]))
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := p.Publish(ctx, args[1], make([]byte, 4096)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/via"
)

// A request that finds nobody listening is made again after these times: the rank is about to end, and
// its presence says so.
const (
	firstRetry = time.Millisecond
	lastRetry  = 50 * time.Millisecond
	// maxFailures is how many requests in a row may fail for want of resources.
	maxFailures = 20
)

// Want begins to import the peer's presence.
func (p *viaPort) Want() {
	if p.state != portEnded {
		p.begin()
	}
}

func (p *viaPort) begin() {
	if p.wanted {
		return
	}
	p.wanted = true
	var ctx context.Context
	ctx, p.stop = context.WithCancel(p.m.ctx)
	p.m.tasks.Go(func() { p.meet(ctx) })
}

// meet imports the peer's presence.
func (p *viaPort) meet(ctx context.Context) {
	e := p.m.e
	im, key, err := p.importPresence(ctx)
	var host via.HostAddress
	if err == nil {
		host, err = p.m.hostOf(p.rank)
	}
	e.mu.Lock()
	refused := p.refused.Load()
	switch {
	case p.closed || p.state == portEnded && !refused:
		e.mu.Unlock()
		if im != nil {
			_ = im.Close() // an error: the engine has ended, too
		}
		return
	case err != nil:
		e.peers[p.rank].fail(p.end(err))
		e.mu.Unlock()
		if im != nil {
			_ = im.Close() // as above
		}
		return
	}
	p.im = im
	p.ended.Store(im)
	p.local = via.Address{Host: p.m.nic.Attributes().Address, Discriminator: credential(key, e.rank)}
	p.remote = via.Address{Host: host, Discriminator: discriminator(im.Exporter().PID, p.id)}
	p.watches = []vmmc.Watch{{Word: p.refusal, From: im}}
	e.activate(e.peers[p.rank])
	if p.asker != nil {
		r := p.asker
		p.asker = nil
		p.asked(r)
	}
	if p.sends && p.state == portIdle {
		p.state = portRequesting
		p.m.tasks.Go(p.request)
	}
	e.mu.Unlock()
	if refused {
		p.tellRefusal(im)
	}
}

// importPresence imports the presence, and reads the peer's key.
func (p *viaPort) importPresence(ctx context.Context) (_ *vmmc.Import, key uint64, err error) {
	e := p.m.e
	select {
	case e.connecting <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	defer func() { <-e.connecting }()
	im, err := e.Import(ctx, p.rank, p.id)
	if err != nil {
		return nil, 0, fmt.Errorf("connect to rank %d by module via: %w", p.rank, err)
	}
	var b [8]byte
	if !slices.Equal(im.Label(), p.m.label()) || im.Size() != p.m.own.Size() {
		err = fmt.Errorf("rank %d has another version of this package, or is of another job", p.rank)
	} else {
		err = im.Get(ctx, b[:], keyAt)
	}
	if err != nil {
		return nil, 0, errors.Join(err, im.Close())
	}
	return im, binary.LittleEndian.Uint64(b[:]), nil
}

// attributes are those of all VIs. Of a tag's regions only the zone enables RDMA.
func attributes(tag *via.ProtectionTag) via.VIAttributes {
	return via.VIAttributes{
		Level: via.ReliableDelivery, MaxTransferSize: slotSize, Tag: tag, EnableRDMAWrite: true, EnableRDMARead: true,
	}
}

// prepare makes the VI, and posts its receives.
func (p *viaPort) prepare() error {
	if p.vi != nil {
		return p.unready
	}
	const n = prepost + spares
	data := make([]byte, n*vbufSize)
	tag, err := p.m.nic.NewTag()
	if err != nil {
		return err
	}
	mem, err := p.m.nic.Register(data, via.MemoryAttributes{Tag: tag})
	if err != nil {
		return errors.Join(err, tag.Destroy())
	}
	vi, err := p.m.nic.NewVI(attributes(tag), nil, p.m.arrived)
	if err != nil {
		return errors.Join(err, mem.Deregister(), tag.Destroy())
	}
	p.tag = tag
	p.m.byVI.Store(vi, p)
	p.vi, p.receives = vi, make([]vbuf, n)
	for i := range p.receives {
		v := &p.receives[i]
		v.data = data[i*vbufSize:][:vbufSize]
		v.seg[0] = mem.Segment(i*vbufSize, vbufSize)
		v.Segments = v.seg[:]
		if p.unready = vi.PostReceive(&v.Descriptor); p.unready != nil {
			break
		}
	}
	return p.unready
}

// request requests the connection until the peer accepts it, or requests it itself.
func (p *viaPort) request() {
	e := p.m.e
	failures := 0
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		e.mu.Lock()
		err := p.prepare()
		vi := p.vi
		e.mu.Unlock()
		if err == nil {
			_, err = vi.Connect(p.m.ctx, p.local, p.remote)
		}
		e.mu.Lock()
		over := p.requested(err, &failures)
		e.mu.Unlock()
		if over || !timeout.Sleep(p.m.ctx, pause) {
			return
		}
	}
}

// requested goes on from the outcome of a request. It reports whether that was the last one.
func (p *viaPort) requested(err error, failures *int) bool {
	theirs := p.pending
	p.pending = nil
	switch {
	case p.state != portRequesting || p.Ended():
		if theirs != nil {
			_ = theirs.Reject()
		}
	case err == nil:
		if theirs != nil {
			_ = theirs.Reject()
		}
		p.state = portConnected
		p.m.e.pumpAll()
	case errors.Is(err, via.ErrReject): // the peer requests, too, or it refuses this rank, and says so
		p.state = portAwaiting
		if theirs != nil {
			p.asked(theirs)
		}
	default:
		if !errors.Is(err, via.ErrNoMatch) && !errors.Is(err, via.ErrNotReachable) {
			*failures++
		}
		if *failures < maxFailures {
			p.pending = theirs
			return false
		}
		p.breaks(fmt.Errorf("connect to rank %d by module via, at %v: %w", p.rank, p.remote, err))
	}
	return true
}

// asked answers the peer's request.
func (p *viaPort) asked(r *via.Request) {
	if p.im == nil && p.state != portEnded && p.asker == nil { // its death is to be noticed
		p.asker = r
		p.begin()
		return
	}
	if p.im == nil {
		_ = r.Reject() // an error: it was given up
		return
	}
	switch p.state {
	case portRequesting:
		if p.m.e.rank > p.rank && p.pending == nil { // the peer is about to reject this rank's
			p.pending = r
			return
		}
	case portIdle, portAwaiting:
		if err := p.prepare(); err != nil {
			p.breaks(fmt.Errorf("accept the connection of rank %d by module via: %w", p.rank, err))
			break // the peer is told why it is rejected: it would wait for this rank's request
		}
		if r.Accept(p.vi) != nil { // the request was given up: the peer makes it again
			p.state = portIdle
			return
		}
		p.state = portConnected
		p.m.e.pumpAll()
		return
	case portConnected, portEnded:
	}
	_ = r.Reject() // an error: it was given up
}

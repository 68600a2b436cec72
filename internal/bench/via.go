package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/via"
)

// viaEnd is what an end has for the measurement of package via: a VI with two receives posted, and
// memory for a message each way. That of the far end is the library's, and may be written and read.
type viaEnd struct {
	nic  *via.NIC
	vi   *via.VI
	mem  *via.Memory
	send *via.Descriptor
}

// viaWarm is how many RDMA operations precede those that count: the first go by messages.
const viaWarm = 200

// viaSends are half the round trips of SENDs, with Import.Send as their limit, and RDMA operations
// of a size that is not short, with Send and Get.
func viaSends(ctx context.Context, e *end, size int) (err error) {
	var v *viaEnd
	far, err := e.with(ctx, job{Do: "viaopen", Size: size}, func() (err error) {
		v, err = e.viaDial(ctx, size)
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		_, endErr := e.with(ctx, job{Do: "viaend"}, func() error { return nil })
		err = errors.Join(err, v.nic.Close(), endErr)
	}()
	n := e.count(size, e.often(20000, 2000), 128<<20)
	ours := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "viapong", N: n + n/10}
		_, err := e.with(ctx, j, func() error { return v.ping(ctx, j.N, h.skipping(n/10)) })
		return 0, err
	}
	limit := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "pong", Size: size, N: n + n/10, First: e.next(n + n/10)}
		_, err := e.with(ctx, j, func() error { return e.ping(ctx, j, h.skipping(n/10)) })
		return 0, err
	}
	r := Result{What: "via", Variant: "SEND", Size: size, Unit: Nanos, Count: n, LimitIs: "Import.Send"}
	if err := e.compare(ctx, r, ours, limit); err != nil || size < 64<<10 {
		return err
	}
	to := via.Remote{Address: uint64(far[0]), Handle: via.Handle(far[1])}
	src := v.send.Segments[0].Data
	for _, c := range []struct {
		variant, limit string
		op             via.Control
		raw            func() error
	}{
		{"RDMA write", "Import.Send", via.OpRDMAWrite, func() error { return e.out.Send(ctx, src, 0) }},
		{"RDMA read", "Import.Get", via.OpRDMARead, func() error { return e.out.Get(ctx, src, 0) }},
	} {
		d := &via.Descriptor{Control: c.op, Segments: v.send.Segments, Remote: to}
		each := func(f func() error, warm int) probe {
			return func(_ context.Context, h *hist) (float64, error) { return 0, timed(f, n+warm, h.skipping(warm)) }
		}
		r := Result{What: "via", Variant: c.variant, Size: size, Unit: Nanos, Count: n, LimitIs: c.limit}
		if err := e.compare(ctx, r, each(func() error { return v.post(ctx, d) }, viaWarm), each(c.raw, 0)); err != nil {
			return err
		}
	}
	return nil
}

// timed calls f and reports what each call takes.
func timed(f func() error, n int, each func(time.Duration)) error {
	clock := baseline.NewClock()
	for range n {
		start := clock.Now()
		if err := f(); err != nil {
			return err
		}
		each(clock.Since(start))
	}
	return nil
}

// newVIA opens a NIC for messages of a size.
func (e *end) newVIA(data []byte, size int) (v *viaEnd, err error) {
	v = &viaEnd{}
	if v.nic, err = via.Open(e.p, "nic0"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = v.nic.Close()
		}
	}()
	v.nic.OnError(func(via.AsyncError) {}) // descriptors say what fails, and the end loses the connection
	tag, err := v.nic.NewTag()
	if err != nil {
		return nil, err
	}
	v.mem, err = v.nic.Register(data, via.MemoryAttributes{Tag: tag, EnableRDMAWrite: true, EnableRDMARead: true, Direct: true})
	if err != nil {
		return nil, err
	}
	v.vi, err = v.nic.NewVI(via.VIAttributes{
		Level: via.ReliableDelivery, MaxTransferSize: v.nic.Attributes().MaxTransferSize, Tag: tag,
		EnableRDMAWrite: true, EnableRDMARead: true,
	}, nil, nil)
	if err != nil {
		return nil, err
	}
	v.send = &via.Descriptor{Segments: []via.Segment{v.mem.Segment(0, size)}}
	for range 2 {
		err = v.vi.PostReceive(&via.Descriptor{Segments: []via.Segment{v.mem.Segment(size, size)}})
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

const viaDiscriminator = "vmmc bench"

// viaDial connects with the far end.
func (e *end) viaDial(ctx context.Context, size int) (*viaEnd, error) {
	v, err := e.newVIA(make([]byte, 2*size), size)
	if err != nil {
		return nil, err
	}
	name, err := e.p.NodeToName(e.node)
	if err == nil {
		var host via.HostAddress
		if host, err = v.nic.HostByName(name, 0); err == nil {
			_, err = v.vi.Connect(ctx, via.Address{}, via.Address{Host: host, Discriminator: viaDiscriminator})
		}
	}
	if err != nil {
		return nil, errors.Join(err, v.nic.Close())
	}
	return v, nil
}

// viaOpen is the far end of viaDial. It returns the address and handle of its memory.
func viaOpen(ctx context.Context, e *end, j job) ([]float64, error) {
	m, err := e.p.Alloc(max(2*j.Size, 4096))
	if err != nil {
		return nil, err
	}
	if e.via, err = e.newVIA(m.Bytes(), j.Size); err != nil {
		return nil, err
	}
	l, err := e.via.nic.Listen(ctx, viaDiscriminator)
	if err != nil {
		return nil, err
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	r, err := l.Wait(ctx)
	if err == nil {
		err = r.Accept(e.via.vi)
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	to := e.via.mem.Remote(0)
	return []float64{float64(to.Address), float64(to.Handle)}, nil
}

// viaEnds is the end of that.
func viaEnds(ctx context.Context, e *end, _ job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	return nil, e.via.nic.Close()
}

// post posts a descriptor to the send queue and waits for it.
func (v *viaEnd) post(ctx context.Context, d *via.Descriptor) error {
	if err := v.vi.PostSend(d); err != nil {
		return err
	}
	got, err := v.vi.SendWait(ctx)
	if err != nil && got != nil {
		return fmt.Errorf("%w: status %#x", err, got.Status)
	}
	return err
}

// receive waits for a message, and posts the receive again.
func (v *viaEnd) receive(ctx context.Context) error {
	d, err := v.vi.ReceiveWait(ctx)
	if err != nil {
		return err
	}
	return v.vi.PostReceive(d)
}

// ping sends messages and waits for each answer, and reports one way's time.
func (v *viaEnd) ping(ctx context.Context, n int, each func(time.Duration)) error {
	return timed(func() error {
		if err := v.post(ctx, v.send); err != nil {
			return err
		}
		return v.receive(ctx)
	}, n, func(d time.Duration) { each(d / 2) })
}

// viaPong is the far end of ping.
func viaPong(ctx context.Context, e *end, j job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	for range j.N {
		if err := e.via.receive(ctx); err != nil {
			return nil, err
		}
		if err := e.via.post(ctx, e.via.send); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

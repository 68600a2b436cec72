package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
)

// scale is the latency of one word on one link, while many others are idle, beside
// the same latency without them: links (each from a process of its own to an export
// of its own), importers of one buffer, and exports without importers. And it is
// the memory that such a link takes.
func scale(ctx context.Context, e *end, most int) error {
	if e.Count > 0 {
		most = e.Count
	} else if e.Quick {
		most /= 10
	}
	for _, variant := range []string{"links", "importers", "exports"} {
		if err := e.crowded(ctx, variant, most); err != nil {
			return fmt.Errorf("%d %s: %w", most, variant, err)
		}
	}
	return nil
}

// The memory of a link is what all links add to processes that are open already, by
// their number, in PSS: each side's part of the Go heap and stacks, and the pages
// of the link's two page files and of the buffer, which are counted half at either
// end. The kernel's own structures for sockets and descriptors are not in it; what
// waits in the buffers of TCP sockets is, as a part of its own.
func (e *end) crowded(ctx context.Context, variant string, most int) error {
	n := e.often(20000, 4000)
	if e.Quick || e.Count > 0 {
		n = 500
	}
	latency := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "pong", Size: 4, N: n, First: e.next(n)}
		_, err := e.with(ctx, j, func() error { return e.ping(ctx, j, h.skipping(n/10)) })
		return 0, err
	}
	r := Result{What: "scale", Size: 4, Unit: Nanos, Count: n, LimitIs: "without them"}
	alone, err := e.measureOnly(ctx, latency)
	if err != nil {
		return err
	}
	exports := most
	if variant == "importers" {
		exports = 1
	}
	if _, err := e.with(ctx, job{Do: "exports", N: exports}, func() error { return nil }); err != nil {
		return err
	}
	defer func() { _, _ = e.with(ctx, job{Do: "exports"}, func() error { return nil }) }()
	var crowd []*vmmc.Process
	defer func() {
		for _, p := range crowd {
			_ = p.Close()
		}
	}()
	empty, err := e.footprint(ctx)
	if err != nil {
		return err
	}
	for i := 0; variant != "exports" && i < most; i++ {
		p, err := vmmc.Open(ctx, vmmc.WithSocket(e.socket))
		if err != nil {
			return err
		}
		crowd = append(crowd, p)
	}
	before, err := e.footprint(ctx)
	if err != nil {
		return err
	}
	for i, p := range crowd {
		if _, err := p.Import(ctx, e.node, e.pid, crowdID+uint32(i%exports)); err != nil {
			return err
		}
	}
	after, err := e.footprint(ctx)
	if err != nil {
		return err
	}
	r.Limit = alone
	r.Variant = fmt.Sprintf("latency beside %d %s", most, variant)
	if _, err := e.compareTo(ctx, r, latency); err != nil || variant == "exports" {
		return err
	}
	each := func(i int) float64 { return max(0, after[i]-before[i]) / float64(most) }
	for _, part := range []struct {
		name  string
		value float64
	}{
		{"memory of an idle link, both ends", each(0) + each(1) + each(2)},
		{"its importer's end", each(0)},
		{"its exporter's end", each(1)},
		{"its sockets", each(2)},
		{"an importing process without it", max(0, before[0]-empty[0]) / float64(most)},
	} {
		m := Result{What: "scale", Variant: fmt.Sprintf("%s, %d %s", part.name, most, variant), Size: 4, Unit: Bytes, Value: part.value, Count: most}
		if err := e.report(m); err != nil {
			return err
		}
	}
	return nil
}

// footprint is the memory of both ends, and that of all TCP sockets of the machine.
func (e *end) footprint(ctx context.Context) ([]float64, error) {
	theirs, err := e.with(ctx, job{Do: "memory"}, func() error { return nil })
	if err != nil {
		return nil, err
	}
	mine, err := ownMemory()
	if err != nil {
		return nil, err
	}
	sockets, err := socketMemory()
	return []float64{mine, theirs[0], sockets}, err
}

// memory is the far end of footprint.
func memory(ctx context.Context, e *end, _ job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	time.Sleep(50 * time.Millisecond) // what an end of links leaves to the background
	v, err := ownMemory()
	return []float64{v}, err
}

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// crowdID is the first of many exports; what one is a page long.
const crowdID = 1000

// imports is the time of an import and its close, by the number of exports that the
// far end has: with a link there already, and with one that is made for it.
func imports(ctx context.Context, e *end, most int) error {
	if e.Quick {
		most = min(most, 1000)
	}
	limits, err := unix.OwnLimits()
	if err != nil {
		return err
	}
	most = min(most, max(1, int(limits.Files)-1000)) // each has a descriptor
	defer func() { _, _ = e.with(ctx, job{Do: "exports"}, func() error { return nil }) }()
	n := e.count(4, e.often(100, 50), 1<<30)
	var one float64 // with a link, and 1 export
	for k := 1; k <= most; k *= 10 {
		if _, err := e.with(ctx, job{Do: "exports", N: k}, func() error { return nil }); err != nil {
			return err
		}
		of := func(first bool) probe {
			return func(ctx context.Context, h *hist) (float64, error) { return 0, e.import1(ctx, k, n, first, h) }
		}
		r := Result{What: "import", Variant: fmt.Sprintf("linked, %d exports", k), Size: 4096, Unit: Micros, Count: n}
		if r.Limit = one; k > 1 {
			r.LimitIs = "with 1 export"
		}
		v, err := e.compareTo(ctx, r, of(false))
		if err != nil {
			return err
		}
		if k == 1 {
			one = v
		}
		r = Result{What: "import", Variant: fmt.Sprintf("first, %d exports", k), Size: 4096, Unit: Micros, Count: n}
		var alone probe
		if e.introduced != nil {
			r.LimitIs = "the packets and pages alone"
			alone = func(ctx context.Context, h *hist) (float64, error) { return 0, e.introduced.Import(ctx, n, h.add) }
		}
		if err := e.compare(ctx, r, of(true), alone); err != nil {
			return err
		}
	}
	return nil
}

// import1 imports one of k exports n times: from this process, which has a link to
// the far end, or each time from another one, which has none.
func (e *end) import1(ctx context.Context, k, n int, alone bool, h *hist) error {
	for i := range n {
		p := e.p
		if alone {
			var err error
			if p, err = vmmc.Open(ctx, vmmc.WithSocket(e.socket)); err != nil {
				return err
			}
		}
		start := time.Now()
		im, err := p.Import(ctx, e.node, e.pid, crowdID+uint32(i%k))
		if err == nil {
			err = im.Close()
		}
		h.add(time.Since(start))
		if alone {
			if cerr := p.Close(); err == nil {
				err = cerr
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// exports has the far end export as many pages as it is told.
func exports(ctx context.Context, e *end, j job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	for len(e.crowd) < j.N {
		m, err := e.p.Alloc(4096)
		if err != nil {
			return nil, err
		}
		x, err := e.p.Export(crowdID+uint32(len(e.crowd)), m.Bytes())
		if err != nil {
			return nil, err
		}
		e.crowd = append(e.crowd, crowded{x, m})
	}
	for n := len(e.crowd); n > j.N; n-- {
		if err := e.crowd[n-1].x.Close(); err != nil {
			return nil, err
		}
		if err := e.crowd[n-1].m.Close(); err != nil {
			return nil, err
		}
		e.crowd = e.crowd[:n-1]
	}
	return nil, nil
}

// crowded is one of many exports.
type crowded struct {
	x *vmmc.Export
	m *vmmc.Memory
}

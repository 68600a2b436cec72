package bench

import (
	"context"
	"encoding/binary"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// breakdown is where the time of a message goes, by the clock that both processes
// have, with the same stamps for the limit:
//
//	post      the send call
//	transfer  from its end to the beginning of the last look that found nothing;
//	          less than 0 where the kernel delivers within the call
//	arrival   from there to the look that found it: taking it off the socket,
//	          checking it, storing it
//	sight     from that look until the wait has returned
//
// The parts of one message add up to its whole; their medians need not.
func breakdown(ctx context.Context, e *end, size int) error {
	n := e.count(size, e.often(10000, 3000), 64<<20)
	parts := []string{"post", "transfer", "arrival", "sight", "sum of the parts", "whole"}
	ours, limit := make([][]float64, len(parts)), make([][]float64, len(parts))
	for i := range e.Rounds + 1 {
		for _, raw := range []bool{false, true} {
			ms, err := e.dissect(ctx, job{Do: "stamp", Raw: raw, Size: size, N: n, First: e.next(n)})
			if err != nil {
				return err
			}
			to := ours
			if raw {
				to = limit
			}
			for k, m := range ms {
				if i > 0 {
					to[k] = append(to[k], m)
				}
			}
		}
	}
	for k, part := range parts {
		r := Result{
			What: "breakdown", Variant: part, Size: size, Unit: Nanos, Rounds: e.Rounds, Count: n,
			Value: median(ours[k]), Limit: median(limit[k]), LimitIs: e.limitIs("a raw shared flag", "raw TCP"),
		}
		if r.Limit > 0 && r.Value > 0 {
			r.Ratio = median(ratios(ours[k], limit[k]))
		}
		if err := e.report(r); err != nil {
			return err
		}
	}
	return nil
}

// dissect is one round: the median of each part, their sum, and that of the whole.
func (e *end) dissect(ctx context.Context, j job) ([]float64, error) {
	before, after := make([]int64, j.N), make([]int64, j.N)
	src, back := make([]byte, j.Size), make([]byte, j.Size)
	far, err := e.with(ctx, j, func() error {
		for i := range j.N {
			v := j.First + uint32(i)
			binary.LittleEndian.PutUint32(src[j.Size-4:], v)
			var err error
			before[i] = unix.Monotonic()
			switch {
			case !j.Raw:
				err = e.out.Send(ctx, src, 0)
			case e.Path == Remote:
				err = e.tcp.Send(ctx, src)
			default:
				e.raw.Put(src, 0, v)
			}
			after[i] = unix.Monotonic()
			if err != nil {
				return err
			}
			switch {
			case !j.Raw:
				err = e.await(ctx, j.Size, v)
			case e.Path == Remote:
				err = e.tcp.Receive(ctx, back)
			default:
				err = e.raw.Await(ctx, j.Size, v)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var parts [5][]float64
	for i := range j.N {
		if i < j.N/10 {
			continue // warm-up
		}
		vain, found, over := far[3*i], far[3*i+1], far[3*i+2]
		for k, d := range []float64{float64(after[i] - before[i]), vain - float64(after[i]), found - vain, over - found, over - float64(before[i])} {
			parts[k] = append(parts[k], d)
		}
	}
	var out []float64
	sum := 0.0
	for k, p := range parts {
		m := median(p)
		if k == 4 {
			out = append(out, sum)
		}
		out, sum = append(out, m), sum+m
	}
	return out, nil
}

// stamp is the far end of breakdown.
func stamp(ctx context.Context, e *end, j job) ([]float64, error) {
	w, err := e.in.Word(j.Size - 4)
	if err != nil {
		return nil, err
	}
	b := make([]byte, j.Size)
	out := make([]float64, 0, 3*j.N)
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	for v := j.First; v != j.First+uint32(j.N); v++ {
		vain, found, got := int64(0), int64(0), false
		look := func() { vain, found = found, unix.Monotonic() }
		switch {
		case !j.Raw:
			err = e.p.WaitUntil(ctx, func() bool {
				if !got { // it may be asked again
					look()
					got = w.Load() == v
				}
				return got
			})
		case e.Path == Remote:
			err = e.tcp.Look(ctx, b, func() { vain = unix.Monotonic() })
			found = unix.Monotonic()
		default:
			err = e.raw.Look(ctx, j.Size, v, look)
		}
		if err != nil {
			return nil, err
		}
		over := unix.Monotonic()
		if vain == 0 {
			vain = found
		}
		out = append(out, float64(vain), float64(found), float64(over))
		binary.LittleEndian.PutUint32(b[j.Size-4:], v)
		switch {
		case !j.Raw:
			err = e.out.Send(ctx, b, 0)
		case e.Path == Remote:
			err = e.tcp.Send(ctx, b)
		default:
			e.raw.Put(b, 0, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

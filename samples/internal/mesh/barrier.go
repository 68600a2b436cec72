package mesh

import "context"

// Barrier returns when all ranks have called it as often. In round k a rank tells
// the one 2^k after it, and hears of the one 2^k before it; after the last round
// it has heard of all. What a rank sent to another before is there when that one
// returns, if it has heard of it directly; with two ranks it always has.
func (h *Mesh) Barrier(ctx context.Context) error {
	h.epoch++
	n := len(h.Pairs)
	for d := 1; d < n; d *= 2 {
		if err := h.Pairs[(h.Rank+d)%n].put(ctx, passed, h.epoch); err != nil {
			return err
		}
		w := h.Pairs[(h.Rank-d+n)%n].passed
		for {
			v := w.Load()
			// It may be one barrier ahead already.
			if int32(v-h.epoch) >= 0 {
				break
			}
			if _, err := w.Wait(ctx, v); err != nil {
				return err
			}
		}
	}
	return nil
}

package route

import "math/rand/v2"

// Draw makes a route through n ranks, the same for the same seed. In a chain, and
// with one to all, as many ranks as there are iterations are drawn, each another
// one than that before it, and if the last one is not the master it follows.
func Draw(k Kind, seed uint64, n, iterations int) []Message {
	r := rand.New(rand.NewPCG(seed, uint64(n))) //nolint:gosec // the same each time is what it is for
	var out []Message
	switch k {
	case Chain:
		step := 0
		walk(r, n, iterations, func(from, to int) {
			out = append(out, Message{step, from, to})
			step++
		})
	case One2All:
		step := 0
		walk(r, n, iterations, func(from, to int) {
			for _, o := range others(r, n, from) {
				out = append(out, Message{step, from, o})
			}
			for _, o := range others(r, n, to) {
				out = append(out, Message{step + 1, o, to})
			}
			step += 2
		})
	case All2All:
		for step := range iterations {
			for _, m := range r.Perm(n * (n - 1)) {
				from, to := m/(n-1), m%(n-1)
				if to >= from {
					to++
				}
				out = append(out, Message{step, from, to})
			}
		}
	}
	return out
}

// walk goes from the master from rank to rank and back.
func walk(r *rand.Rand, n, iterations int, hop func(from, to int)) {
	at := 0
	for range iterations {
		to := r.IntN(n - 1)
		if to >= at {
			to++
		}
		hop(at, to)
		at = to
	}
	if at != 0 {
		hop(at, 0)
	}
}

// others are all ranks but one, in random order.
func others(r *rand.Rand, n, but int) []int {
	out := r.Perm(n - 1)
	for i, o := range out {
		if o >= but {
			out[i]++
		}
	}
	return out
}

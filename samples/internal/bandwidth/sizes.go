package bandwidth

// sizes are the powers of two times from, up to to.
func sizes(from, to int) []int {
	var out []int
	for n := from; n <= to; n *= 2 {
		out = append(out, n)
	}
	return out
}

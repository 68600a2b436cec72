package vmmc

// UseUpDestSpace leaves room for n more bytes of DestSpace addresses.
func UseUpDestSpace(p *Process, n uint64) {
	p.dest.mu.Lock()
	p.dest.next = -n - 1
	p.dest.mu.Unlock()
}
